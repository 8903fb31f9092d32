// Prefill that keeps the k best scores of each query instead of storing all: exact, in one pass over the keys. Of equal scores the lowest
// position is selected, as by select_topk, and the result has its bits.
//
// A query's candidates are the scores above its threshold, and are appended to 64 lists in global memory (which L2 holds), one for each
// place of a key among 64. So every thread appends to a list of its own, without communication. Before a list can overflow, the warpgroup
// selects the k best candidates of its two queries and raises their thresholds to the worst of these. Keys come in ascending order, so that
// a later key with the threshold's own value would lose to all k, and candidates are strictly above it. In random order, a query of 128K
// keys has some 20,000 candidates in all, and this happens three times; in ascending order of scores, every 6,000 keys.
//
// A block whose keys two or more CTAs share leaves their candidates, at most k from each, and `finish_kernel` selects among these. It
// also sorts every query's positions.
#pragma once

#include "../select_topk/short_rows.cuh"
#include "prefill.cuh"

namespace indexer {

constexpr int kLists = 64;
constexpr int kSlots = 128;           // entries of a list
constexpr int kCheckedTiles = 8;      // tiles between two looks at the lengths of lists
constexpr int kMostNew = kCheckedTiles * kTile / kLists;  // entries that a list can get in between
constexpr int kMostSelected = 2048;   // the largest k: the k best fill the first slots of all lists evenly
constexpr int kBins = 1024;           // of a histogram, and values of a digit
constexpr int kBinBits = 10;
constexpr int kFewest = 128;          // candidates of one bin that are compared with each other one by one
constexpr int kSelectQueries = 6;     // of a block
constexpr int kRankPositions = 28;    // bits of a position in a rank; the value's key is above them

// What the CTAs leave in global memory. Entries are (bits of the score, position).
struct Scratch {
  uint2* lists;     // [ctas, 6, kSlots, kLists]: the candidates under way; in the end, those of a CTA's last block, if it is not whole
  uint2* firsts;    // [ctas, 6, k]: those of its first block
  int32_t* blocks;  // [ctas, 2]: the first and the last block, if not whole; else -1
  int32_t* counts;  // [ctas, 2, 6]: entries of each of their queries
};

struct Selected {
  int32_t* out;  // [rows, k]
  int k, ctas;
  Scratch scratch;
};

inline size_t scratch_bytes(int ctas, int k) {
  return size_t(ctas) * (sizeof(uint2) * kSelectQueries * (kSlots * kLists + k) + sizeof(int32_t) * 2 * (1 + kSelectQueries));
}
inline Scratch divide_scratch(void* start, int ctas, int k) {
  uint2* lists = static_cast<uint2*>(start);
  uint2* firsts = lists + size_t(ctas) * kSelectQueries * kSlots * kLists;
  int32_t* blocks = reinterpret_cast<int32_t*>(firsts + size_t(ctas) * kSelectQueries * k);
  return {lists, firsts, blocks, blocks + 2 * ctas};
}

// What a math warpgroup needs to select.
struct GroupMemory {
  uint32_t bins[kBins + 32];  // the last are for entries that do not exist, so that counting needs no branches
  uint64_t few[kFewest];  // ranks of the candidates that share the bin of the last selected one
  uint32_t lengths[2][kLists];
  uint32_t sums[4], lowest[4], highest[4], worst[4];  // by warp; all but the sums are keys
  uint32_t bin, above, inside;              // the bin of the last selected candidate; candidates above that bin, and in it
  uint32_t few_count;
  uint64_t least;  // the lowest rank selected
  int kept[2];     // entries of each query afterwards
  float thresholds[2];
};

struct SelectMemory {
  PrefillMemory<6> tiles;
  GroupMemory groups[kGroups];
};
static_assert(sizeof(SelectMemory) <= 227 * 1024);

__device__ __forceinline__ uint64_t candidate_rank(uint32_t key, uint32_t position) {
  return uint64_t(key) << kRankPositions | ((1u << kRankPositions) - 1 - position);
}

// Predicated accesses: the compiler would make branches of conditions, and wait at each.
__device__ __forceinline__ uint2 load_if(bool condition, const uint2* from) {
  uint2 value;
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.global.cg.v2.b32 {%0, %1}, [%3];\n}\n"
               : "=r"(value.x), "=r"(value.y)
               : "r"(int(condition)), "l"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ void store_if(bool condition, void* to, uint32_t word) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\n@p st.global.b32 [%1], %2;\n}\n" ::"r"(int(condition)), "l"(to), "r"(word)
               : "memory");
}

// Selects among the candidates of one query. The 128 threads of a warpgroup call all functions together, between barriers of their own.
// Thread t has entries t, t + 128, ...: entry i of a thread is in slot 2 i + t / 64 of list t mod 64.
struct Selector {
  static constexpr int kEach = kSlots * kLists / kWarpgroup;
  GroupMemory& m;
  int thread;
  const uint2* entries;  // this thread's
  int group, k;
  int count;         // of this thread's entries
  uint32_t all, most;  // entries of all threads; the most that a thread has

  __device__ __forceinline__ Selector(GroupMemory& memory, int thread, const uint2* query_entries, const uint32_t* lengths, int group, int k)
      : m(memory), thread(thread), entries(query_entries + thread), group(group), k(k) {
    asm volatile("" : "+l"(entries));  // one pointer: otherwise each of 64 loads computes, and keeps, its own
    const int lane = thread & 31;
    const uint32_t low = lengths[lane], high = lengths[lane + 32];
    all = __reduce_add_sync(~0u, low + high);
    most = (__reduce_max_sync(~0u, max(low, high)) + 1) / 2;
    count = (static_cast<int>(lengths[thread % kLists]) - thread / kLists + 1) / 2;
  }

  __device__ __forceinline__ void sync() const { common::named_sync(1 + group, kWarpgroup); }
  __device__ __forceinline__ uint2 entry(int i) const { return __ldcg(entries + i * kWarpgroup); }
  __device__ __forceinline__ uint64_t rank(int i) const {
    const uint2 e = entry(i);
    return candidate_rank(topk::key_of(__uint_as_float(e.x)), e.y);
  }

  __device__ __forceinline__ void clear_bins() const {
#pragma unroll
    for (int i = 0; i < kBins / kWarpgroup; ++i) m.bins[i * kWarpgroup + thread] = 0;
  }

  // The sum of `value` over the threads before this one.
  __device__ __forceinline__ uint32_t sum_before(uint32_t value) const {
    const int lane = thread & 31, warp = thread / 32;
    uint32_t sum = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(~0u, sum, step);
      sum += lane >= step ? other : 0;
    }
    if (lane == 31) m.sums[warp] = sum;
    sync();
    uint32_t before = sum - value;
#pragma unroll
    for (int i = 0; i < 3; ++i) before += i < warp ? m.sums[i] : 0;
    return before;
  }

  // Finds the bin of the needed-th best candidate.
  __device__ __forceinline__ void find_bin(uint32_t needed) const {
    constexpr int kMine = kBins / kWarpgroup;
    const int first = kBins - (thread + 1) * kMine;  // thread 0 has the highest bins
    uint32_t counts[kMine], sum = 0;
#pragma unroll
    for (int i = 0; i < kMine; ++i) sum += counts[i] = m.bins[first + i];
    uint32_t above = sum_before(sum);
#pragma unroll
    for (int i = kMine - 1; i >= 0; --i) {
      if (above < needed && needed <= above + counts[i]) m.bin = first + i, m.above = above, m.inside = counts[i];
      above += counts[i];
    }
    sync();
  }

  // Finds the needed-th best rank among the entries in `inside`, digit by digit, and reads them anew for each digit. Inlined, it would take
  // registers from the loop over tiles.
  __device__ __noinline__ void find_least(uint64_t inside, uint32_t needed) const {
    uint64_t prefix = 0;
#pragma unroll 1
    for (int shift = 5 * kBinBits;; shift -= kBinBits) {
      clear_bins();
      sync();
#pragma unroll 1
      for (int i = 0; i < uniform(most); ++i) {
        if (!(inside >> i & 1)) continue;
        const uint64_t mine = rank(i);
        if (mine >> (shift + kBinBits) == prefix) atomicAdd(&m.bins[uint32_t(mine >> shift) % kBins], 1);
      }
      sync();
      find_bin(needed);
      prefix = prefix << kBinBits | m.bin;
      needed -= m.above;
      if (!uniform(m.inside == needed)) continue;  // not at the last digit, since all ranks differ
      if (thread == 0) m.least = prefix << shift;
      sync();
      return;
    }
  }

  // Returns which of this thread's entries belong to the k best. `values` is overwritten.
  __device__ __forceinline__ uint64_t find_best(float (&values)[kColumns / 2]) const {
    static_assert(kEach == kColumns / 2);
    const int lane = thread & 31, warp = thread / 32;
    // Absent entries are NaN, which minimum and maximum ignore; no candidate is NaN.
    float lowest = INFINITY, highest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kEach; ++i) values[i] = i < count ? __uint_as_float(__ldcg(&entries[i * kWarpgroup].x)) : NAN;
#pragma unroll
    for (int i = 0; i < kEach; ++i) lowest = fminf(lowest, values[i]), highest = fmaxf(highest, values[i]);
    const uint32_t low = __reduce_min_sync(~0u, topk::key_of(lowest)), high = __reduce_max_sync(~0u, topk::key_of(highest));
    if (lane == 0) m.lowest[warp] = low, m.highest[warp] = high;
    if (thread == 0) m.few_count = 0, m.least = 0;
    clear_bins();
    sync();
    const topk::Scale scale(topk::value_of(__reduce_min_sync(~0u, m.lowest[lane % 4])),
                            fminf(topk::value_of(__reduce_max_sync(~0u, m.highest[lane % 4])), -topk::kLowest));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint32_t place = scale.place<kBins>(values[i]);
      atomicAdd(&m.bins[i < count ? place : kBins + lane], 1);
      values[i] = __uint_as_float(i < count ? place + 1 : 0);
    }
    hold(values);  // otherwise places are kept beside values, and registers spill
    sync();
    find_bin(k);
    const uint32_t bin = m.bin, inside = m.inside, needed = k - m.above;
    uint64_t keep = 0, edge = 0;  // above the bin, and in it
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint32_t place = __float_as_uint(values[i]);
      keep |= uint64_t(place > bin + 1) << i;
      edge |= uint64_t(place == bin + 1) << i;
    }
    if (uniform(inside == needed)) return keep | edge;
    if (uniform(inside <= kFewest)) {
      for (uint64_t rest = edge; rest; rest &= rest - 1) m.few[atomicAdd(&m.few_count, 1)] = rank(__ffsll(rest) - 1);
      sync();
      const uint64_t mine = m.few[thread];  // of the first `inside` threads
      uint32_t above = 0;
      for (int i = 0; i < uniform(inside); ++i) above += m.few[i] > mine;
      if (thread < inside && above + 1 == needed) m.least = mine;
      sync();
    } else {
      find_least(edge, needed);
    }
    for (uint64_t rest = edge; rest; rest &= rest - 1)
      if (rank(__ffsll(rest) - 1) >= m.least) keep |= rest & -rest;
    return keep;
  }

  // Writes the min(k, all) best to `to`, in no order: entries, or positions alone, less `begin`. Returns the lowest of their scores. `values` is
  // overwritten, and `to` may be the query's own entries.
  __device__ __forceinline__ float select(float (&values)[kColumns / 2], void* to_start, bool positions_only, uint32_t begin) const {
    constexpr int kAtOnce = 16;
    static_assert(kAtOnce * kWarpgroup == kMostSelected);
    const int lane = thread & 31, warp = thread / 32;
    uint64_t keep = count < kEach ? (uint64_t(1) << count) - 1 : ~uint64_t(0);
    if (uniform(all > k)) keep = find_best(values);
    const uint32_t stride = positions_only ? sizeof(uint32_t) : sizeof(uint2);
    char* to = static_cast<char*>(to_start) + sum_before(__popcll(keep)) * stride;
    float lowest = INFINITY;
#pragma unroll 1
    for (int first = 0; first < uniform(most); first += kAtOnce, keep >>= kAtOnce) {
      uint2 e[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        e[i] = load_if(keep >> i & 1, entries + (first + i) * kWarpgroup);
      if (first == 0) sync();  // the entries that may be overwritten, the first kMostSelected, have been read
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const bool kept = keep >> i & 1;
        lowest = fminf(lowest, kept ? __uint_as_float(e[i].x) : INFINITY);
        store_if(kept && !positions_only, to, e[i].x);
        store_if(kept, to + (stride - sizeof(uint32_t)), e[i].y - begin);
        to += kept ? stride : 0;
      }
    }
    const uint32_t low = __reduce_min_sync(~0u, topk::key_of(lowest));
    if (lane == 0) m.worst[warp] = low;
    sync();
    return topk::value_of(__reduce_min_sync(~0u, m.worst[lane % 4]));
  }
};

// The sink of prefill_math.
template <int kHeads>
struct KeepBest {
  static_assert(Sums<kHeads, kColumns>::kHeld == 1 && kQueries<kHeads> == kSelectQueries);
  const Prefill& p;
  const Selected& selected;
  GroupMemory& m;
  int group;
  int start = 0;
  uint32_t keys = 0;            // those of this thread's query are [start, start + keys)
  float threshold = -INFINITY;
  uint32_t next = 0;            // bytes from the CTA's lists to the place of this thread's next entry

  static constexpr uint32_t kStride = kLists * sizeof(uint2), kQueryBytes = kSlots * kStride;

  static __device__ __forceinline__ int list() { return Sums<kHeads, kColumns>::key(); }
  static __device__ __forceinline__ int query() { return Sums<kHeads, kColumns>::query(); }
  __device__ __forceinline__ uint2* lists() const { return selected.scratch.lists + size_t(blockIdx.x) * kSelectQueries * kSlots * kLists; }
  __device__ __forceinline__ uint32_t empty_list() const { return (2 * group + query()) * kQueryBytes + list() * sizeof(uint2); }
  __device__ __forceinline__ uint32_t length() const { return next % kQueryBytes / kStride; }

  __device__ __forceinline__ void begin(int row) {
    const int2 range = keys_of(p, row);
    start = range.x;
    keys = max(range.y - range.x, 0);
    threshold = -INFINITY;
    next = empty_list();
  }

  __device__ __forceinline__ void take(int, int tile, int key, float score) {
    const int column = tile * kTile + key;
    if (score > threshold && uint32_t(column - start) < keys) {  // NaN and -inf are never above
      *reinterpret_cast<uint2*>(reinterpret_cast<char*>(lists()) + next) = make_uint2(__float_as_uint(score), column);
      next += kStride;
    }
  }

  __device__ __forceinline__ bool tile_done(const Run& run, int tile, bool done, float (&d)[kColumns / 2]) {
    if (!done) {
      if (tile % kCheckedTiles != kCheckedTiles - 1) return false;
      // A list that is not shortened now has fewer than kSlots entries at the next look.
      int full = length() >= kSlots - kMostNew;
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\nbarrier.cta.red.or.aligned.pred p, %1, %2, p;\nselp.b32 %0, 1, 0, p;\n}\n"
          : "+r"(full)
          : "r"(1 + group), "n"(kWarpgroup)
          : "memory");
      if (!uniform(full)) return false;
    }
    select(run, done, d);
    return true;
  }

  // Keeps the best of both queries: in their lists, or as the result of the run.
  __device__ __forceinline__ void select(const Run& run, bool done, float (&d)[kColumns / 2]) {
    // What follows from this is computed here, and not before the loop over tiles, whose registers it would take.
    const int thread = common::opaque(threadIdx.x % kWarpgroup);
    const int k = selected.k;
    const bool last = uniform(run.part) == Run::kLast, positions_only = done && uniform(run.part) == Run::kWhole;
    m.lengths[query()][list()] = length();
    common::named_sync(1 + group, kWarpgroup);
#pragma unroll 1
    for (int which = 0; which < 2; ++which) {
      const int index = 2 * group + which, owner = run.item * kSelectQueries + index, begin = keys_of(p, owner).x;
      uint2* entries = lists() + index * (kSlots * kLists);
      uint2* const to = !done || last ? entries : selected.scratch.firsts + (size_t(blockIdx.x) * kSelectQueries + index) * k;
      int32_t* const positions = selected.out + int64_t(owner) * k;  // relative to the first key
      const Selector selector(m, thread, entries, m.lengths[which], group, k);
      void* const result = positions_only ? static_cast<void*>(positions) : to;
      const float lowest = selector.select(d, result, positions_only, positions_only ? begin : 0);
      const int kept = min(selector.all, k);
      if (!done) {
        if (thread == 0) m.kept[which] = kept, m.thresholds[which] = selector.all >= k ? lowest : -INFINITY;
      } else if (!positions_only) {
        if (thread == 0) selected.scratch.counts[(blockIdx.x * 2 + last) * kSelectQueries + index] = kept;
      } else if (owner < p.rows) {
        for (int first = 0; first < k; first += kWarpgroup) {
          const int at = first + thread;
          if (kept <= at && at < k) positions[at] = -1;
        }
      }
    }
    if (done) return;
    common::named_sync(1 + group, kWarpgroup);
    begin(run.item * kSelectQueries + 2 * group + query());  // anew, so that nothing of it takes registers above
    threshold = m.thresholds[query()];
    next = empty_list() + (m.kept[query()] + kLists - 1 - list()) / kLists * kStride;
  }
};

// The kernel of prefill for 33 to 64 heads.
__global__ void __launch_bounds__(kPrefillThreads, 1)
    indexer_select_kernel(const __grid_constant__ Prefill p, const __grid_constant__ Selected selected,
                          const __grid_constant__ CUtensorMap query_map, const __grid_constant__ CUtensorMap key_map,
                          const __grid_constant__ CUtensorMap scale_map) {
  extern __shared__ __align__(1024) uint8_t memory[];
  SelectMemory& s = *reinterpret_cast<SelectMemory*>(memory);
  int32_t* blocks = selected.scratch.blocks + 2 * blockIdx.x;
  if (threadIdx.x == 0) blocks[0] = blocks[1] = -1;  // `find_share` has a barrier before the first run
  run_roles<64>(
      p, query_map, key_map, scale_map, s.tiles, [&](int group) { return KeepBest<64>{p, selected, s.groups[group], group}; },
      [&](const Run& run) {
        if (run.part != Run::kWhole) blocks[run.part == Run::kLast] = run.item;
      });
}

// ---- the rest: selection among the candidates of several CTAs, and order ----

constexpr int kFinishThreads = 256;
constexpr int kMostCtas = 512;

struct FinishMemory {
  alignas(16) uint32_t histogram[kBins];
  uint32_t warp_sums[2][32];
  topk::Found found;
  int parts;
  int part[2 * kMostCtas];  // which entries of Scratch::blocks are this row's block
  alignas(16) uint32_t bitmap[];  // a bit for each key of the row
};

// Sorts the positions of one query, which are in `out` already or must be selected among the candidates that several CTAs left. One CTA
// for each query.
__global__ void __launch_bounds__(kFinishThreads) finish_kernel(const __grid_constant__ Prefill p, const __grid_constant__ Selected selected) {
  extern __shared__ __align__(16) uint8_t memory[];
  FinishMemory& s = *reinterpret_cast<FinishMemory*>(memory);
  const int row = blockIdx.x, thread = threadIdx.x, k = selected.k;
  const int block = row / kSelectQueries, query = row % kSelectQueries;
  const int2 range = keys_of(p, row);
  const int length = range.y - range.x, words = (length + 31) / 32;
  int32_t* out = selected.out + int64_t(row) * k;
  if (length <= 0) {
    for (int i = thread; i < k; i += kFinishThreads) out[i] = -1;
    return;
  }
  if (thread == 0) s.parts = 0;
  for (int i = thread; i < words; i += kFinishThreads) s.bitmap[i] = 0;
  __syncthreads();
  for (int i = thread; i < 2 * selected.ctas; i += kFinishThreads)
    if (selected.scratch.blocks[i] == block) s.part[atomicAdd(&s.parts, 1)] = i;
  __syncthreads();

  const auto mark = [&](int position) { atomicOr(&s.bitmap[position / 32], 1u << position % 32); };
  const auto count_of = [&](int part) { return selected.scratch.counts[part * kSelectQueries + query]; };
  // Calls visit(entry) for the candidates.
  const auto visit = [&](auto visit_one) {
    for (int at = 0; at < s.parts; ++at) {
      const int part = s.part[at], count = count_of(part);
      const size_t index = size_t(part / 2) * kSelectQueries + query;
      const uint2* entries = part % 2 ? selected.scratch.lists + index * (kSlots * kLists) : selected.scratch.firsts + index * k;
      for (int i = thread; i < count; i += kFinishThreads) visit_one(entries[i]);
    }
  };
  if (s.parts == 0) {
    for (int i = thread; i < k; i += kFinishThreads)
      if (const int position = out[i]; position >= 0) mark(position);
  } else {
    int total = 0;
    for (int at = 0; at < s.parts; ++at) total += count_of(s.part[at]);
    uint64_t least = 0;
    if (total > k) {  // the k-th best rank, digit by digit
      uint64_t prefix = 0;
      uint32_t needed = k;
      for (int shift = 5 * kBinBits;; shift -= kBinBits) {
        reinterpret_cast<uint4*>(s.histogram)[thread] = make_uint4(0, 0, 0, 0);
        __syncthreads();
        visit([&](uint2 entry) {
          const uint64_t rank = candidate_rank(topk::key_of(__uint_as_float(entry.x)), entry.y);
          if (rank >> (shift + kBinBits) == prefix) atomicAdd(&s.histogram[uint32_t(rank >> shift) % kBins], 1);
        });
        __syncthreads();
        const topk::Found found = topk::find_digit<kFinishThreads>(s, needed);
        prefix = prefix << kBinBits | found.digit;
        needed -= found.above;
        least = prefix << shift;
        if (found.count == needed) break;  // at the last digit at the latest, since all ranks differ
      }
    }
    visit([&](uint2 entry) {
      if (candidate_rank(topk::key_of(__uint_as_float(entry.x)), entry.y) >= least) mark(int(entry.y) - range.x);
    });
  }
  __syncthreads();

  const int mine = (words + kFinishThreads - 1) / kFinishThreads, first = thread * mine, offset = range.x - __ldg(p.starts + row);
  uint32_t sum = 0;
  for (int i = first; i < min(first + mine, words); ++i) sum += __popc(s.bitmap[i]);
  const topk::Scan scan = topk::block_scan<kFinishThreads>(sum, s.warp_sums[1]);
  uint32_t to = scan.before;
  for (int i = first; i < min(first + mine, words); ++i)
    for (uint32_t word = s.bitmap[i]; word; word &= word - 1) out[to++] = 32 * i + __ffs(word) - 1 + offset;
  for (int i = scan.total + thread; i < k; i += kFinishThreads) out[i] = -1;
}

}  // namespace indexer

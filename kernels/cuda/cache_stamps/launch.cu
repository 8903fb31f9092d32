// Stamps next to the paged caches (definitions: kernels/cache_stamps.py): the chains and stamps of a step's new tokens, one CTA a sequence;
// and the checks, one CTA for each layer of each task.

#include "../common/lane_sums.cuh"
#include "../common/pdl.cuh"

namespace cache_stamps {

using namespace common;

constexpr int kStampThreads = 256;
constexpr int kCheckThreads = 128;
constexpr unsigned kAll = ~0u;

// As in kernels/reference/cache_stamps.py.
constexpr int kRecordHash = 1, kCompareHash = 2;
enum Kind { kLatent, kIndex, kChain, kTokens, kLatentBytes, kIndexBytes };
constexpr int kFoundWords = 4;
// As in kernels/reference/cache_stamps.py.
constexpr unsigned kFibonacci = 2654435769u;
constexpr int kHashEvery = 8;

struct Chain {
  uint64_t before, after;
};

__device__ __forceinline__ int32_t stamp_of(uint64_t chain, uint64_t factor) { return static_cast<int32_t>(chain * factor >> 32); }

struct Stamping {
  const int64_t* tokens;        // [T]
  const int64_t* positions;     // [T]
  const int64_t* slots;         // [T]
  const int32_t* block_table;   // [B, width]
  const int32_t* query_starts;  // [B + 1], or null: one token a sequence
  const uint64_t* multipliers;  // [N]
  const uint64_t* factors;      // [columns]
  Chain* chains;                // [S]
  int32_t* stamps;              // [columns, T]
  int width, page_size, columns, tokens_count;
};

__global__ void __launch_bounds__(kStampThreads) stamp_kernel(Stamping p) {
  __shared__ uint64_t warp_sums[kStampThreads / 32];
  common::pdl_launch_dependents();
  common::pdl_wait();
  const int b = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = p.query_starts == nullptr ? b : p.query_starts[b];
  const int end = p.query_starts == nullptr ? b + 1 : p.query_starts[b + 1];
  if (first == end) return;
  const int64_t start = p.positions[first];
  uint64_t base = 0;
  if (start > 0) {
    const int64_t previous = start - 1;
    const int64_t page = p.block_table[static_cast<int64_t>(b) * p.width + previous / p.page_size];
    base = p.chains[page * p.page_size + previous % p.page_size].after;
  }
  for (int tile = first; tile < end; tile += kStampThreads) {
    const int t = tile + threadIdx.x;
    const uint64_t term = t < end ? (p.tokens[t] + 1) * p.multipliers[p.positions[t]] : 0;
    uint64_t sum = term;  // of the tile's terms up to this one
    uint64_t total = term;
    if (end - first > 1) {
      sum = sum_through(sum, lane);
      if (lane == 31) warp_sums[warp] = sum;
      __syncthreads();
      total = 0;
#pragma unroll
      for (int w = 0; w < kStampThreads / 32; ++w) {
        if (w < warp) sum += warp_sums[w];
        total += warp_sums[w];
      }
      __syncthreads();
    }
    if (t < end) {
      p.chains[p.slots[t]] = {base + sum - term, base + sum};
      if (end - first > 1)
        for (int c = 0; c < p.columns; ++c) p.stamps[static_cast<int64_t>(c) * p.tokens_count + t] = stamp_of(base + sum, p.factors[c]);
    }
    if (end - first == 1) {  // a decode: all threads share its stamps
      const uint64_t after = base + (p.tokens[first] + 1) * p.multipliers[start];
      for (int c = threadIdx.x; c < p.columns; c += kStampThreads)
        p.stamps[static_cast<int64_t>(c) * p.tokens_count + first] = stamp_of(after, p.factors[c]);
    }
    base += total;
  }
}

struct Checking {
  const Chain* chains;          // [S]
  const int32_t* columns;       // [layers, 2, slots]
  uint64_t* hashes;             // [layers, 2, pages]
  const uint64_t* factors;      // [layers, 2]
  const uint64_t* multipliers;  // [N]
  const uint64_t* addresses;    // [layers, 2]
  const int32_t* block_table;   // [B, width]
  const int64_t* step;          // [1]
  const int64_t* tasks;         // [count, 5], or null: decode tasks of the lengths
  const int32_t* lengths;       // [B]
  const int64_t* truths;        // [truth_count, 3]
  unsigned long long* claims;   // [R]
  int64_t* found;               // [2, 1 + R * kFoundWords]; may be memory of the host
  int64_t slots, pages, found_size;
  int page_words[2];
  int width, page_size, count, batch, truth_count, padding_page;
};

struct Task {
  int row, number, entries, action, reported;
};

// As decode_tasks in kernels/reference/cache_stamps.py.
__device__ __forceinline__ Task decode_task(const Checking& p, int n) {
  const int row = n % p.batch;
  const int position = p.lengths[row] - 1, pages = position / p.page_size;
  if (n < p.batch) {
    const int entries = position % p.page_size + 1;
    return {row, pages, entries, entries == p.page_size ? kRecordHash : 0, row};
  }
  const unsigned some = static_cast<uint64_t>(position * kFibonacci) * pages >> 32;
  const bool compare = pages > 0 && position % kHashEvery == 0;
  return {row, static_cast<int>(some), pages > 0 ? p.page_size : 0, compare ? kCompareHash : 0, row};
}

// Note the first mismatch of a row in this step.
__device__ __noinline__ void report(const Checking& p, int row, int kind, int layer, int64_t position, int64_t expected, int64_t found) {
  const int64_t step = *p.step;
  if (atomicMax(p.claims + row, static_cast<unsigned long long>(step)) >= static_cast<unsigned long long>(step)) return;
  volatile int64_t* half = p.found + (step & 1) * p.found_size;
  volatile int64_t* record = half + 1 + static_cast<int64_t>(row) * kFoundWords;
  record[1] = static_cast<int64_t>(kind) << 48 | static_cast<int64_t>(layer) << 32 | position;
  record[2] = expected;
  record[3] = found;
  record[0] = step;
  half[0] = step;
}

__device__ __forceinline__ void check_entries(const Checking& p, const Task& task, int64_t page, int layer) {
  for (int i = threadIdx.x; i < 2 * p.page_size; i += kCheckThreads) {
    const int kind = i / p.page_size, offset = i % p.page_size;
    if (offset >= task.entries) continue;
    const int64_t slot = page * p.page_size + offset;
    const int64_t position = static_cast<int64_t>(task.number) * p.page_size + offset;
    const Chain chain = p.chains[slot];
    const int column = layer * 2 + kind;
    const int32_t expected = stamp_of(chain.after, p.factors[column]), found = p.columns[column * p.slots + slot];
    if (expected != found) report(p, task.reported, kind == 0 ? kLatent : kIndex, layer, position, expected, found);
    if (layer > 0 || kind > 0) continue;
    uint64_t previous = 0;
    if (offset > 0) {
      previous = p.chains[slot - 1].after;
    } else if (task.number > 0) {
      const int64_t before = p.block_table[static_cast<int64_t>(task.row) * p.width + task.number - 1];
      previous = p.chains[before * p.page_size + p.page_size - 1].after;
    }
    if (chain.before != previous) report(p, task.reported, kChain, 0, position, previous, chain.before);
  }
}

// The sum of a page's 64-bit words, each times the multiplier of its place, in thread 0.
__device__ __forceinline__ uint64_t hash_page(const Checking& p, int64_t page, int column) {
  __shared__ uint64_t warp_sums[kCheckThreads / 32];
  const int count = p.page_words[column % 2];
  const uint64_t* words = reinterpret_cast<const uint64_t*>(p.addresses[column]) + page * count;
  uint64_t sum = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += kCheckThreads) sum += words[i] * p.multipliers[i];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(kAll, sum, distance);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return 0;
  for (int warp = 1; warp < kCheckThreads / 32; ++warp) sum += warp_sums[warp];
  return sum;
}

__global__ void __launch_bounds__(kCheckThreads) check_kernel(Checking p) {
  common::pdl_launch_dependents();
  common::pdl_wait();
  const int n = blockIdx.x, layer = blockIdx.y;
  if (n == p.count) {  // one CTA more than tasks: the chains that the host has computed
    for (int k = threadIdx.x; layer == 0 && k < p.truth_count; k += kCheckThreads) {
      const int64_t row = p.truths[3 * k], position = p.truths[3 * k + 1], expected = p.truths[3 * k + 2];
      if (row < 0) continue;
      const int64_t page = p.block_table[row * p.width + position / p.page_size];
      const int64_t found = p.chains[page * p.page_size + position % p.page_size].after;
      if (found != expected) report(p, static_cast<int>(row), kTokens, 0, position, expected, found);
    }
    return;
  }
  Task task;
  if (p.tasks == nullptr) {
    task = decode_task(p, n);
  } else {
    const int64_t* given = p.tasks + 5 * static_cast<int64_t>(n);
    task = {static_cast<int>(given[0]), static_cast<int>(given[1]), static_cast<int>(given[2]), static_cast<int>(given[3]),
            static_cast<int>(given[4])};
  }
  const int64_t page = p.block_table[static_cast<int64_t>(task.row) * p.width + task.number];
  if (page == p.padding_page) return;
  check_entries(p, task, page, layer);
  if (task.action == 0) return;
  for (int kind = 0; kind < 2; ++kind) {
    const int column = layer * 2 + kind;
    const uint64_t hash = hash_page(p, page, column);
    if (threadIdx.x > 0) continue;
    uint64_t* kept = p.hashes + column * p.pages + page;
    if (task.action & kRecordHash) {
      *kept = hash;
    } else if (*kept != hash) {
      const int64_t position = static_cast<int64_t>(task.number) * p.page_size;
      report(p, task.reported, kind == 0 ? kLatentBytes : kIndexBytes, layer, position, static_cast<int64_t>(*kept),
             static_cast<int64_t>(hash));
    }
  }
}

// tokens, positions, slots int64 [T], block_table int32 [B, W], query_starts int32 [B + 1] or none, chains int64 [S, 2], factors int64 [L, 2],
// multipliers int64 [N] -> chains of the new slots, stamps int32 [L, 2, T].
void stamp_tokens(TensorView tokens, TensorView positions, TensorView slots, TensorView block_table,
                  Optional<TensorView> query_starts, TensorView chains, TensorView factors, TensorView multipliers, TensorView stamps, int64_t page_size) {
  DeviceGuard guard(tokens);
  Stamping p = {};
  p.tokens = data<int64_t>(tokens);
  p.positions = data<int64_t>(positions);
  p.slots = data<int64_t>(slots);
  p.block_table = data<int32_t>(block_table);
  p.query_starts = data<int32_t>(query_starts);
  p.multipliers = data<uint64_t>(multipliers);
  p.factors = data<uint64_t>(factors);
  p.chains = data<Chain>(chains);
  p.stamps = data<int32_t>(stamps);
  p.width = static_cast<int>(block_table.stride(0));
  p.page_size = static_cast<int>(page_size);
  p.columns = static_cast<int>(factors.size(0) * factors.size(1));
  p.tokens_count = static_cast<int>(tokens.size(0));
  launch_pdl(stamp_kernel, dim3(static_cast<unsigned>(block_table.size(0))), kStampThreads, 0, stream_of(tokens), p);
}

// The arguments of check_cache in kernels/cache_stamps.py, and the tensors of its Stamps.
void check_cache(TensorView block_table, TensorView step, Optional<TensorView> tasks, Optional<TensorView> lengths,
                 Optional<TensorView> truths, TensorView chains, TensorView columns, TensorView hashes, TensorView factors,
                 TensorView multipliers, TensorView addresses, TensorView claims, TensorView found, int64_t page_size,
                 int64_t latent_words, int64_t index_words, int64_t padding_page) {
  DeviceGuard guard(block_table);
  Checking p = {};
  p.chains = data<Chain>(chains);
  p.columns = data<int32_t>(columns);
  p.hashes = data<uint64_t>(hashes);
  p.factors = data<uint64_t>(factors);
  p.multipliers = data<uint64_t>(multipliers);
  p.addresses = data<uint64_t>(addresses);
  p.block_table = data<int32_t>(block_table);
  p.step = data<int64_t>(step);
  p.tasks = data<int64_t>(tasks);
  p.lengths = data<int32_t>(lengths);
  p.truths = data<int64_t>(truths);
  p.claims = data<unsigned long long>(claims);
  p.found = data<int64_t>(found);
  p.slots = chains.size(0);
  p.pages = hashes.size(2);
  p.found_size = found.size(1);
  p.page_words[0] = static_cast<int>(latent_words);
  p.page_words[1] = static_cast<int>(index_words);
  p.width = static_cast<int>(block_table.stride(0));
  p.page_size = static_cast<int>(page_size);
  p.padding_page = static_cast<int>(padding_page);
  p.batch = static_cast<int>(block_table.size(0));
  p.count = tasks.has_value() ? static_cast<int>(tasks.value().size(0)) : 2 * p.batch;
  p.truth_count = truths.has_value() ? static_cast<int>(truths.value().size(0)) : 0;
  const dim3 grid(static_cast<unsigned>(p.count + (p.truth_count > 0 ? 1 : 0)), static_cast<unsigned>(hashes.size(0)));
  if (grid.x > 0) launch_pdl(check_kernel, grid, kCheckThreads, 0, stream_of(block_table), p);
}

}  // namespace cache_stamps

TVM_FFI_DLL_EXPORT_TYPED_FUNC(stamp_tokens, cache_stamps::stamp_tokens);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(check_cache, cache_stamps::check_cache);

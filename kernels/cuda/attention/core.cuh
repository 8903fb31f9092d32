// The attention core of all kernels here: 64 query rows against blocks of 64 keys, in a seesaw of two math warpgroups.
//
// Group 0 scores even blocks, group 1 odd ones; each owns 256 of the 512 output columns and hands its probabilities to the other.
// While one does its softmax the other's MMAs run:
//
//   group 0:  Q K0 | softmax 0 | P0 V0 left             | wait P1   | P1 V1 left   | (next) Q K0 ...
//   group 1:  wait P0          | P0 V0 right | Q K1     | softmax 1 | P1 V1 right
//
// A block's buffer is released as soon as its own softmax and values are done, whether or not the other block has arrived: the
// kernel lives on gathering without pause, and 2 x 72 KB of buffers are all that fits.
//
// The reference that exponents are taken from moves only when a row's maximum exceeds it by more than 2^8: after the first blocks,
// accumulators are hardly ever rescaled. A third warpgroup brings the keys (gather.cuh, dequantize.cuh).
//
// With kPair two CTAs of a cluster hold two halves of a query's rows: each converts half of the keys of every block and copies them to
// the other. Rope is fetched by both, because P of even blocks overwrites that tile in each at its own time.
#pragma once

#include "shared_memory.cuh"

namespace mla {

constexpr float kLazy = 8.0f;     // log2 of how far a maximum may run ahead of the reference
constexpr float kFloor = -1e30f;  // the first reference: finite, so that -inf - reference is never NaN

struct RowState {
  float reference[2], sum[2], top[2];  // of this thread's two rows; `top` is the true maximum of the raw scores
};

__device__ __forceinline__ void rescale(float (&o)[128], RowState& row, float first, float second) {
  if (__any_sync(~0u, first != row.reference[0] || second != row.reference[1])) {
    const float factor[2] = {exp2_approx(row.reference[0] - first), exp2_approx(row.reference[1] - second)};
#pragma unroll
    for (int i = 0; i < 128; ++i) o[i] *= factor[(i >> 1) & 1];
    row.sum[0] *= factor[0];
    row.sum[1] *= factor[1];
    row.reference[0] = first;
    row.reference[1] = second;
  }
}

template <class C>
__device__ __forceinline__ void compute_scores(float (&scores)[32], SharedMemory& s, int buffer, uint32_t parity) {
  const Tile q = Tile::rows(shared_address(s.q)), k = Tile::rows(shared_address(s.k[buffer]));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    barrier_wait(shared_address(&s.full[buffer][half]), parity);
    fence_async_proxy();
    mma_begin();
    const int end = half == 0 ? kLeftTiles : kTiles;
#pragma unroll
    for (int tile = half * kLeftTiles; tile < end; ++tile)
#pragma unroll
      for (int step = 0; step < 4; ++step)
        Mma<typename C::Element>::scores(scores, q.at(tile * kTile + step * 32), k.at(tile * kTile + step * 32), tile + step > 0,
                                         std::make_index_sequence<32>());
  }
  mma_commit();
}

// Masks scores and returns the reference to use for the two rows, in log2 units.
template <class C>
__device__ __forceinline__ void take_maximum(float (&scores)[32], RowState& row, const Problem& p, SharedMemory& s, int buffer,
                                             uint32_t parity, int column, const int (&limit)[2]) {
  const int lane = threadIdx.x & 31;
  if constexpr (C::kLookup == Lookup::kIndices) {
    barrier_wait(shared_address(&s.mask_full[buffer]), parity);
    const uint64_t mask = *reinterpret_cast<volatile uint64_t*>(&s.mask[buffer]);
    if (mask != ~uint64_t(0)) {
      const uint64_t mine = mask >> (2 * (lane & 3));
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (!((mine >> (8 * (i >> 2) + (i & 1))) & 1)) scores[i] = -INFINITY;
    }
  } else {
    const int first = column + 2 * (lane & 3);
    if (column + kBlock > min(limit[0], limit[1])) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (first + 8 * (i >> 2) + (i & 1) >= limit[(i >> 1) & 1]) scores[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < 8; ++i) top = fmaxf(top, fmaxf(scores[4 * i + 2 * half], scores[4 * i + 2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    row.top[half] = fmaxf(row.top[half], top);
  }
}

__device__ __forceinline__ float next_reference(float reference, float top, float scale_log2) {
  const float candidate = top * scale_log2;
  return candidate > reference + kLazy ? candidate : reference;
}

template <class Element>
__device__ __forceinline__ void exponentiate(float (&scores)[32], uint32_t (&packed)[16], float (&sum)[2], float scale_log2,
                                             float first, float second) {
  const float reference[2] = {first, second};
  float added[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int half = i & 1;
    const float low = exp2_approx(fmaf(scores[2 * i], scale_log2, -reference[half]));
    const float high = exp2_approx(fmaf(scores[2 * i + 1], scale_log2, -reference[half]));
    added[half] += low + high;
    packed[i] = pack<Element>(low, high);
  }
  sum[0] += added[0];
  sum[1] += added[1];
}

__device__ __forceinline__ void store_probabilities(const uint32_t (&packed)[16], uint32_t tile) {
  const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
  const int line = warp * 16 + ((lane >> 3) & 1) * 8 + (lane & 7);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int chunk = 2 * step + (lane >> 4);
    store_matrices(tile + line * 128 + ((chunk ^ (line & 7)) << 4), packed[4 * step], packed[4 * step + 1], packed[4 * step + 2],
                   packed[4 * step + 3]);
  }
  fence_async_proxy();
}

// o += P V for 256 columns starting at tile `v`; P from this group's registers or from the other group's tile.
template <class Element>
__device__ __forceinline__ void add_values(float (&o)[128], const uint32_t (&packed)[16], uint32_t v) {
  const Tile values = Tile::columns(v);
  mma_begin();
#pragma unroll
  for (int step = 0; step < 4; ++step)
    Mma<Element>::output(o, packed + 4 * step, values.at(step * 2048), std::make_index_sequence<128>());
  mma_commit();
}
template <class Element>
__device__ __forceinline__ void add_values(float (&o)[128], uint32_t tile, uint32_t v) {
  const Tile values = Tile::columns(v), probabilities = Tile::rows(tile);
  mma_begin();
#pragma unroll
  for (int step = 0; step < 4; ++step)
    Mma<Element>::output(o, probabilities.at(step * 32), values.at(step * 2048), std::make_index_sequence<128>());
  mma_commit();
}

// One arrival per warp, in both CTAs of a pair: both write there, so a half may be overwritten when all readers in both are done.
template <class C, int kHalf>
__device__ __forceinline__ void release(SharedMemory& s, int buffer) {
  __syncwarp();
  if ((threadIdx.x & 31) == 0) {
    const uint32_t local = shared_address(&s.empty[buffer][kHalf]);
    if constexpr (C::kPair) {
      barrier_arrive_remote(peer_address(local, 0));
      barrier_arrive_remote(peer_address(local, 1));
    } else {
      barrier_arrive(local);
    }
  }
}

__device__ __forceinline__ void release_local(uint64_t& barrier) {
  __syncwarp();
  if ((threadIdx.x & 31) == 0) barrier_arrive(shared_address(&barrier));
}

// Lanes of a quad hold two columns each of every 8-column group: trade, so that each lane stores 16 bytes of one group.
template <class Element>
__device__ __forceinline__ void store_row(Element* row, const float (&o)[128], int half, float factor, bool write) {
  const int t = threadIdx.x & 3;
#pragma unroll
  for (int group = 0; group < 8; ++group) {
    uint32_t v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = (4 * group + i) * 4 + 2 * half;
      v[i] = pack<Element>(o[at] * factor, o[at + 1] * factor);
    }
    // A 4 x 4 transpose over the quad in two exchanges.
    const bool odd = t & 1, upper = t & 2;
    const uint32_t a = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 1), b = __shfl_xor_sync(~0u, odd ? v[2] : v[3], 1);
    const uint32_t x0 = odd ? a : v[0], x1 = odd ? v[1] : a, x2 = odd ? b : v[2], x3 = odd ? v[3] : b;
    const uint32_t c = __shfl_xor_sync(~0u, upper ? x0 : x2, 2), d = __shfl_xor_sync(~0u, upper ? x1 : x3, 2);
    const uint4 mine = upper ? make_uint4(c, d, x2, x3) : make_uint4(x0, x1, c, d);
    if (write) *reinterpret_cast<uint4*>(row + group * 32 + t * 8) = mine;
  }
}

// The result of an item without keys, which both groups write together.
template <class C>
__device__ __forceinline__ void finish_empty(const Problem& p, const Items<C::kLookup>& item, int first_row) {
  const int rows = min(kRows, p.rows - first_row);
  for (int i = threadIdx.x; i < rows * (kValueWidth / 4); i += 256) {
    const int r = first_row + i / (kValueWidth / 4), column = i % (kValueWidth / 4) * 4;
    const int64_t at = int64_t(item.split < 0 ? item.query : item.split) * p.rows + r;
    if (item.split < 0) {
      *reinterpret_cast<uint2*>(static_cast<typename C::Element*>(p.out) + at * kValueWidth + column) = make_uint2(0, 0);
      if (column == 0) {
        p.lse[at] = -INFINITY;
        if (p.max_logits != nullptr) p.max_logits[at] = -INFINITY;
      }
    } else {
      *reinterpret_cast<float4*>(p.partial_out + at * kValueWidth + column) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (column == 0) p.partial_lse[at] = -INFINITY;
    }
  }
}

template <class C, int kGroup>
__device__ __forceinline__ void finish(const Problem& p, SharedMemory& s, const Items<C::kLookup>& item, float (&o)[128],
                                       RowState& row, int first_row) {
  using Element = typename C::Element;
  const int lane = threadIdx.x & 31, line = (threadIdx.x & 127) / 32 * 16 + lane / 4;
  float total[2], top[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = row.sum[half];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    total[half] = sum;
    top[half] = row.top[half];
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if ((lane & 3) == 0) {
      s.sum[kGroup][line + 8 * half] = total[half];
      s.top[kGroup][line + 8 * half] = top[half];
    }
  named_sync(3, 256);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // The same order in both groups, so that both halves of a row are divided by the same number.
    total[half] = s.sum[0][line + 8 * half] + s.sum[1][line + 8 * half];
    top[half] = fmaxf(s.top[0][line + 8 * half], s.top[1][line + 8 * half]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = first_row + line + 8 * half;
    const bool write = r < p.rows;
    const bool empty = top[half] == -INFINITY;
    const float lse = empty ? -INFINITY : row.reference[half] + log2f(total[half]);
    float factor = empty ? 0.0f : 1.0f / total[half];
    if (item.split < 0) {
      if (p.sink != nullptr && write && !empty)
        factor = 1.0f / (total[half] + exp2f(p.sink[r % p.heads] * 1.4426950408889634f - row.reference[half]));
      const int64_t at = int64_t(item.query) * p.rows + r;
      store_row<Element>(static_cast<Element*>(p.out) + at * kValueWidth + kGroup * 256, o, half, factor, write);
      if (kGroup == 0 && (lane & 3) == 0 && write) {
        p.lse[at] = lse * p.lse_factor;
        if (p.max_logits != nullptr) p.max_logits[at] = top[half] * p.scale;
      }
    } else if (write) {
      const int64_t at = int64_t(item.split) * p.rows + r;
      float* target = p.partial_out + at * kValueWidth + kGroup * 256 + 4 * (lane & 3);
#pragma unroll
      for (int i = 0; i < 16; ++i)  // in the order of partial_column
        *reinterpret_cast<float4*>(target + 16 * i) = make_float4(o[8 * i + 2 * half] * factor, o[8 * i + 2 * half + 1] * factor,
                                                                  o[8 * i + 2 * half + 4] * factor, o[8 * i + 2 * half + 5] * factor);
      if (kGroup == 0 && (lane & 3) == 0) p.partial_lse[at] = lse;
    }
  }
}

// Group 0, from the scores of an even block to its values in the left half.
template <class C>
__device__ __forceinline__ void even_block(const Problem& p, SharedMemory& s, float (&scores)[32], uint32_t (&packed)[16],
                                           float (&o)[128], RowState& row, uint32_t phase, int block, const int (&limit)[2],
                                           uint32_t v) {
  const int lane = threadIdx.x & 31, line = (threadIdx.x & 127) / 32 * 16 + lane / 4;
  take_maximum<C>(scores, row, p, s, 0, phase, block * kBlock, limit);
  const float first = next_reference(row.reference[0], row.top[0], p.scale_log2);
  const float second = next_reference(row.reference[1], row.top[1], p.scale_log2);
  if ((lane & 3) == 0) {
    s.reference[0][line] = first;
    s.reference[0][line + 8] = second;
  }
  float added[2] = {0.0f, 0.0f};
  exponentiate<typename C::Element>(scores, packed, added, p.scale_log2, first, second);
  store_probabilities(packed, shared_address(s.k[0]) + 8 * kTile);
  named_arrive(1, 256);
  rescale(o, row, first, second);
  row.sum[0] += added[0];
  row.sum[1] += added[1];
  add_values<typename C::Element>(o, packed, v);
  mma_wait<0>();
  hold(o);
  release<C, 0>(s, 0);
}

template <class C, int kGroup>
__device__ __forceinline__ void math(const Problem& p, SharedMemory& s, int cluster, int clusters, int rank) {
  using Element = typename C::Element;
  const int lane = threadIdx.x & 31, line = (threadIdx.x & 127) / 32 * 16 + lane / 4;
  const uint32_t p0_tile = shared_address(s.k[0]) + 8 * kTile, p1_tile = shared_address(s.p1);
  const uint32_t v0 = shared_address(s.k[0]) + kGroup * kLeftTiles * kTile;
  const uint32_t v1 = shared_address(s.k[1]) + kGroup * kLeftTiles * kTile;
  uint32_t phase0 = 0, phase1 = 0, q_phase = 0;
  bool started = false;

  for (Items<C::kLookup> item(p, cluster, clusters); item.more(); item.next()) {
    const int first_row = (item.group * (C::kPair ? 2 : 1) + rank) * kRows;
    // Queries come ahead of time from the producer; the first ones from here, while it brings the first keys.
    if (kGroup == 1 && !started && item.begin < item.end) {
      load_queries<C>(p, s, item.query, first_row, (threadIdx.x >> 5) & 3);
      started = true;
    }
    float o[128], scores[32];
    uint32_t packed[16];
    RowState row;
#pragma unroll
    for (int i = 0; i < 128; ++i) o[i] = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row.reference[half] = kFloor;
      row.sum[half] = 0.0f;
      row.top[half] = -INFINITY;
    }
    int limit[2] = {item.keys, item.keys};
    if (C::kLookup != Lookup::kIndices && p.causal)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        limit[half] -= p.new_tokens - 1 - min((first_row + line + 8 * half) / p.heads, p.new_tokens - 1);

    if (item.begin >= item.end) {  // no keys at all
      finish_empty<C>(p, item, first_row);
      continue;
    }
    barrier_wait(shared_address(&s.q_full), q_phase);
    fence_async_proxy();
    q_phase ^= 1;
    // Branches around MMAs in flight would make ptxas serialise them: full pairs loop without any, a single last block follows.
    int block = item.begin;
    if constexpr (kGroup == 0) {
      compute_scores<C>(scores, s, 0, phase0);
      for (; block + 2 < item.end; block += 2) {
        mma_wait<0>();
        hold(scores);
        even_block<C>(p, s, scores, packed, o, row, phase0, block, limit, v0);
        phase0 ^= 1;
        named_sync(2, 256);
        rescale(o, row, s.reference[1][line], s.reference[1][line + 8]);
        barrier_wait(shared_address(&s.full[1][0]), phase1);
        phase1 ^= 1;
        add_values<Element>(o, p1_tile, v1);
        compute_scores<C>(scores, s, 0, phase0);
        mma_wait<1>();
        hold(o);
        release<C, 0>(s, 1);
      }
      mma_wait<0>();
      hold(scores);
      release_local(s.q_empty);
      even_block<C>(p, s, scores, packed, o, row, phase0, block, limit, v0);
      phase0 ^= 1;
      named_sync(2, 256);
      if (block + 1 < item.end) {
        rescale(o, row, s.reference[1][line], s.reference[1][line + 8]);
        barrier_wait(shared_address(&s.full[1][0]), phase1);
        phase1 ^= 1;
        add_values<Element>(o, p1_tile, v1);
        mma_wait<0>();
        hold(o);
        release<C, 0>(s, 1);
      }
    } else {
      for (; block + 1 < item.end; block += 2) {
        named_sync(1, 256);
        rescale(o, row, s.reference[0][line], s.reference[0][line + 8]);
        barrier_wait(shared_address(&s.full[0][1]), phase0);
        phase0 ^= 1;
        add_values<Element>(o, p0_tile, v0);
        compute_scores<C>(scores, s, 1, phase1);
        mma_wait<1>();
        hold(o);
        release<C, 1>(s, 0);
        mma_wait<0>();
        hold(scores);
        if (block + 2 >= item.end) release_local(s.q_empty);
        take_maximum<C>(scores, row, p, s, 1, phase1, (block + 1) * kBlock, limit);
        phase1 ^= 1;
        const float first = next_reference(row.reference[0], row.top[0], p.scale_log2);
        const float second = next_reference(row.reference[1], row.top[1], p.scale_log2);
        if ((lane & 3) == 0) {
          s.reference[1][line] = first;
          s.reference[1][line + 8] = second;
        }
        float added[2] = {0.0f, 0.0f};
        exponentiate<Element>(scores, packed, added, p.scale_log2, first, second);
        store_probabilities(packed, p1_tile);
        named_arrive(2, 256);
        rescale(o, row, first, second);
        row.sum[0] += added[0];
        row.sum[1] += added[1];
        add_values<Element>(o, packed, v1);
        mma_wait<0>();
        hold(o);
        release<C, 1>(s, 1);
      }
      if (block < item.end) {
        release_local(s.q_empty);
        named_sync(1, 256);
        rescale(o, row, s.reference[0][line], s.reference[0][line + 8]);
        barrier_wait(shared_address(&s.full[0][1]), phase0);
        phase0 ^= 1;
        add_values<Element>(o, p0_tile, v0);
        mma_wait<0>();
        hold(o);
        release<C, 1>(s, 0);
        named_arrive(2, 256);
      }
    }
    finish<C, kGroup>(p, s, item, o, row, first_row);
  }
}

template <class C>
__device__ __forceinline__ void initialise(SharedMemory& s, const Arrivals& arrivals) {
  if (threadIdx.x == 0) {
    for (int buffer = 0; buffer < 2; ++buffer) {
      for (int half = 0; half < 2; ++half) {
        barrier_init(shared_address(&s.full[buffer][half]), arrivals.full[half]);
        barrier_init(shared_address(&s.empty[buffer][half]), C::kPair ? 8 : 4);
      }
      barrier_init(shared_address(&s.mask_full[buffer]), arrivals.mask);
    }
    barrier_init(shared_address(&s.q_full), arrivals.q);
    barrier_init(shared_address(&s.q_empty), 8);
    barrier_init_fence();
  }
  if constexpr (C::kPair)
    cluster_sync();
  else
    __syncthreads();
}

// `Producer` has Arrivals arrivals() and run(problem, shared memory, cluster, clusters, rank) for its 128 threads.
template <class C, class Producer>
__device__ __forceinline__ void attend(const Problem& p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  SharedMemory& s = *reinterpret_cast<SharedMemory*>(memory);
  static_assert(2 * Producer::kMathRegisters + Producer::kProducerRegisters == 3 * 168, "what 384 threads start with");
  initialise<C>(s, Producer::arrivals());
  // First the plan is waited for, then the merging kernel is let in: it counts on the plan, too.
  if (p.parts != nullptr) asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
  constexpr int kCtas = C::kPair ? 2 : 1;
  const int rank = C::kPair ? cluster_rank() : 0;
  const int cluster = blockIdx.x / kCtas, clusters = gridDim.x / kCtas;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group == 0) {
    grow_registers<Producer::kMathRegisters>();
    math<C, 0>(p, s, cluster, clusters, rank);
  } else if (group == 1) {
    grow_registers<Producer::kMathRegisters>();
    math<C, 1>(p, s, cluster, clusters, rank);
  } else {
    shrink_registers<Producer::kProducerRegisters>();
    Producer::run(p, s, cluster, clusters, rank);
  }
  // No CTA leaves while its peer may still push into it or read from it.
  if constexpr (C::kPair) {
    __syncwarp();
    cluster_sync();
  }
}

}  // namespace mla

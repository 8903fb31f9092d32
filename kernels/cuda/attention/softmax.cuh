// The softmax of the attention core: masks, references, exponentials, and probabilities for the other math group.
#pragma once

#include "shared_memory.cuh"

namespace mla {

struct RowState {  // of this thread's two rows; `top` is the true maximum of the raw scores
  float reference[2] = {kFloor, kFloor}, sum[2] = {0.0f, 0.0f}, top[2] = {-INFINITY, -INFINITY};
};

// Rescales sums and output to new references. Under the first reference all of them are zeros.
template <class... Sums>
__device__ __forceinline__ void rescale(float (&o)[128], RowState& row, float first, float second, Sums&... sums) {
  const bool moved = (first != row.reference[0] && row.reference[0] != kFloor) || (second != row.reference[1] && row.reference[1] != kFloor);
  if (__any_sync(~0u, moved)) {
    const float factor[2] = {exp2_approx(row.reference[0] - first), exp2_approx(row.reference[1] - second)};
#pragma unroll
    for (int i = 0; i < 128; ++i) o[i] *= factor[(i >> 1) & 1];
    row.sum[0] *= factor[0];
    row.sum[1] *= factor[1];
    ((sums[0] *= factor[0], sums[1] *= factor[1]), ...);
  }
  row.reference[0] = first;
  row.reference[1] = second;
}

// One bit for each key of a block: whether it counts. Read while the scores are still being computed.
template <class C>
__device__ __forceinline__ uint64_t read_mask(SharedMemory& s, int buffer, uint32_t parity) {
  if constexpr (C::kLookup != Lookup::kIndices) return ~uint64_t(0);
  barrier_wait(shared_address(&s.mask_full[buffer]), parity);
  return *reinterpret_cast<volatile uint64_t*>(&s.mask[buffer]);
}

// Masks scores and updates the true maximum of the two rows. `column` is that of the block's first key. `limit` is the first column of each
// row that does not count, for lookups without a mask.
template <class C>
__device__ __forceinline__ void take_maximum(float (&scores)[32], RowState& row, uint64_t mask, int column, const int (&limit)[2]) {
  const int lane = threadIdx.x & 31;
  if constexpr (C::kLookup == Lookup::kIndices) {
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

// The probabilities of a range of a block's keys: sixteen keys are one step of the MMA with values, and four words.
template <class Element, int kFirstStep, int kEndStep>
__device__ __forceinline__ void exponentiate(float (&scores)[32], uint32_t (&packed)[16], float (&added)[2], float scale_log2,
                                             float first, float second) {
  const float reference[2] = {first, second};
#pragma unroll
  for (int i = 4 * kFirstStep; i < 4 * kEndStep; ++i) {
    const int half = i & 1;
    const float low = exp2_approx(fmaf(scores[2 * i], scale_log2, -reference[half]));
    const float high = exp2_approx(fmaf(scores[2 * i + 1], scale_log2, -reference[half]));
    added[half] += low + high;
    packed[i] = pack<Element>(low, high);
  }
}

// The same steps into the tile that the other group reads.
template <int kFirstStep, int kEndStep>
__device__ __forceinline__ void store_probabilities(const uint32_t (&packed)[16], uint32_t tile) {
  const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
  const int line = warp * 16 + ((lane >> 3) & 1) * 8 + (lane & 7);
#pragma unroll
  for (int step = kFirstStep; step < kEndStep; ++step) {
    const int chunk = 2 * step + (lane >> 4);
    store_matrices(tile + line * 128 + ((chunk ^ (line & 7)) << 4), packed[4 * step], packed[4 * step + 1], packed[4 * step + 2],
                   packed[4 * step + 3]);
  }
  fence_async_proxy();
}

}  // namespace mla

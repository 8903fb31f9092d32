// Several sums over the lanes of a warp at once. This takes fewer shuffles than one reduction after the other.
#pragma once

namespace common {

// The sum over the lanes up to this one, of the first kLanes.
template <int kLanes = 32, class T>
__device__ __forceinline__ T sum_through(T sum, int lane) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    const T other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  return sum;
}

__device__ __forceinline__ float sum_of_lanes(float x) {
#pragma unroll
  for (int level = 16; level > 0; level /= 2) x += __shfl_xor_sync(~0u, x, level);
  return x;
}

// kCount sums over all lanes, kCount a power of two. Lane l returns sum number l / (32 / kCount). At each step a lane gives half of
// its partial sums to another lane and adds that lane's to the half that it keeps.
template <int kCount>
__device__ __forceinline__ float sums_over_lanes(float (&x)[kCount], int lane) {
#pragma unroll
  for (int step = 0; step < 5; ++step) {
    const int level = 16 >> step, half = kCount >> (step + 1);
    if (half == 0) {
      x[0] += __shfl_xor_sync(~0u, x[0], level);
      continue;
    }
    const bool upper = lane & level;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      if (i >= half) break;
      const float away = upper ? x[i] : x[i + half], kept = upper ? x[i + half] : x[i];
      x[i] = kept + __shfl_xor_sync(~0u, away, level);
    }
  }
  return x[0];
}

}  // namespace common

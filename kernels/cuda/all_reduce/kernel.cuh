// The sum of every rank's part, by GPUs that write into each other's memory: each rank leaves its part in the inboxes of the others, and adds
// the parts that it finds in its own. A packet of eight bytes holds four of data and the number of the call, and is written at once, as in
// NCCL's LL protocol, so that no other signal is needed.
//
// A rank is at most one call ahead of another, whose part it needs to end a call. So two places for a part are enough, which calls use in
// turns. Each CTA counts its own calls, because its pieces have places of their own, whatever the size of a sum.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "../common/pdl.cuh"

namespace all_reduce {

constexpr int kThreads = 256;  // a piece of 16 bytes each

struct Sum {
  const uint4* x;
  uint4* out;
  const int64_t* inboxes;  // [size]: the addresses of all ranks' inboxes on this GPU, [source, 2, slot_bytes] each
  uint32_t* calls;         // [CTAs]: how many calls each has ended
  int64_t slot_bytes;
  int pieces, rank, size;
};

__device__ __forceinline__ void send(uint8_t* to, uint32_t first, uint32_t second, uint32_t call) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %3, %2, %3};" ::"l"(to), "r"(first), "r"(second), "r"(call) : "memory");
}
__device__ __forceinline__ uint2 receive(const uint8_t* from, uint32_t call) {
  uint32_t first, second, sign, other_sign;
  do {
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(first), "=r"(sign), "=r"(second), "=r"(other_sign)
                 : "l"(from)
                 : "memory");
  } while (sign != call || other_sign != call);
  return {first, second};
}

// Adds a word to sums in fp32: two bf16 numbers, or one float.
template <class Element>
__device__ __forceinline__ void add(float (&sums)[2], uint32_t word) {
  if constexpr (std::is_same_v<Element, float>)
    sums[0] += __uint_as_float(word);
  else
    sums[0] += __uint_as_float(word << 16), sums[1] += __uint_as_float(word & 0xFFFF0000u);
}
template <class Element>
__device__ __forceinline__ uint32_t rounded(const float (&sums)[2]) {
  if constexpr (std::is_same_v<Element, float>) return __float_as_uint(sums[0]);
  const __nv_bfloat162 pair = __floats2bfloat162_rn(sums[0], sums[1]);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// The parts are added in the order of ranks, in fp32, and the sum is rounded once: all ranks get the same bits.
template <class Element>
__global__ void __launch_bounds__(kThreads) all_reduce_kernel(Sum p) {
  common::pdl_launch_dependents();
  const int piece = blockIdx.x * kThreads + threadIdx.x;
  common::pdl_wait();
  const uint32_t call = __ldcg(p.calls + blockIdx.x) + 1;
  if (piece < p.pieces) {
    const auto place = [&](int owner, int source) {
      return reinterpret_cast<uint8_t*>(p.inboxes[owner]) + (source * 2 + call % 2) * p.slot_bytes + int64_t(piece) * 32;
    };
    const uint4 own = p.x[piece];
    for (int step = 1; step < p.size; ++step) {
      uint8_t* to = place((p.rank + step) % p.size, p.rank);
      send(to, own.x, own.y, call), send(to + 16, own.z, own.w, call);
    }
    float sums[4][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i][0] = sums[i][1] = -0.0f;  // -0 changes no sum, not even that of -0
    for (int source = 0; source < p.size; ++source) {
      uint2 low = {own.x, own.y}, high = {own.z, own.w};
      if (source != p.rank) {
        const uint8_t* from = place(p.rank, source);
        low = receive(from, call), high = receive(from + 16, call);
      }
      add<Element>(sums[0], low.x), add<Element>(sums[1], low.y), add<Element>(sums[2], high.x), add<Element>(sums[3], high.y);
    }
    p.out[piece] = {rounded<Element>(sums[0]), rounded<Element>(sums[1]), rounded<Element>(sums[2]), rounded<Element>(sums[3])};
  }
  __syncthreads();  // all threads have read the number of calls
  if (threadIdx.x == 0) p.calls[blockIdx.x] = call;
}

}  // namespace all_reduce

// The parts that prefill and paged decode share: operands of FP8 MMAs of 64 keys with the heads of a few queries, and the weighted sum over
// heads.
//
// Keys are the M dimension of the MMA and (query, head) pairs its N dimension. A thread holds two keys and, of every query, a quarter of
// the heads. So the sum over heads stays in registers until the four threads of a quad add their parts.
#pragma once

#include <cuda.h>

#include "../common/fp8_mma.cuh"
#include "../common/lane_sums.cuh"

namespace indexer {

using namespace common;

constexpr int kWidth = 128;  // dims of a head, one byte each: a row is one line of the 128-byte swizzle
constexpr int kKeys = 64;    // keys of one MMA
constexpr int kWarpgroup = 128;

// Acquires at CTA scope: at cluster scope every wait would invalidate the L1 cache.
__device__ __forceinline__ void wait(const uint64_t* barrier, uint32_t parity) {
  const uint32_t address = shared_address(barrier);
  uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
  } while (!done);
}

__device__ __forceinline__ void arrive(uint64_t* barrier) { common::barrier_arrive(shared_address(barrier)); }
__device__ __forceinline__ void arrive_expect(uint64_t* barrier, uint32_t bytes) {
  common::barrier_arrive_expect(shared_address(barrier), bytes);
}
__device__ __forceinline__ void copy_box(void* destination, const CUtensorMap& map, int x, int y, int z, const uint64_t* barrier) {
  copy_3d(shared_address(destination), &map, shared_address(barrier), x, y, z);
}
__device__ __forceinline__ void copy_line(void* destination, const CUtensorMap& map, int x, const uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(
                   shared_address(destination)),
               "l"(&map), "r"(x), "r"(shared_address(barrier))
               : "memory");
}
// A value that is the same in all lanes of a warp, which the compiler does not know. MMA descriptors made of such values stay in uniform
// registers; otherwise each would be moved there again before each MMA, which took 30 of 210 instructions.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(~0u, value, 0); }

// Passed by the producer warps to the math warpgroups with each buffer of queries: the block of queries, and its tiles (or pages) of keys
// [begin, end). A negative `begin` marks the end.
struct Run {
  int item, begin, end;
};

// A position in a ring of shared-memory stages, and the parity of the phase of its barriers.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(int by = 1) {
    stage += by;
    if (stage >= kStages) {
      stage -= kStages;
      parity ^= 1;
    }
  }
};

// The low word of the MMA descriptor of a tile: rows of 128 bytes under the 128-byte swizzle, in groups of eight.
__device__ __forceinline__ uint32_t descriptor(const void* tile) { return (shared_address(tile) & 0x3FFFF) >> 4 | 1u << 16; }

// ---- the weighted sum over heads ----

// A warp copies the weights of kQueries queries x heads to shared memory, and zeros for heads and queries that do not exist.
template <int kHeads, int kQueries>
__device__ __forceinline__ void copy_weights(float* to, const float* from, int64_t stride, int queries, int heads) {
#pragma unroll
  for (int i = threadIdx.x & 31; i < kHeads * kQueries; i += 32) {
    const int query = i / kHeads, head = i % kHeads;
    to[i] = query < queries && head < heads ? __ldg(from + query * stride + head) : 0.0f;
  }
}

// Loads the weights of a thread's columns: that of column 8 j + 2 (lane mod 4) + c goes to w[2 j + c].
template <int kColumns>
__device__ __forceinline__ void load_weights(float (&w)[kColumns / 4], const float* from) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    const float2 pair = *reinterpret_cast<const float2*>(from + 8 * j + 2 * (threadIdx.x & 3));
    w[2 * j] = pair.x;
    w[2 * j + 1] = pair.y;
  }
}

constexpr float kLargest = 33554432.0f;  // 2^25

// ReLU of x / 2^25.
__device__ __forceinline__ float saturated(float x) {
  float y;
  asm("mul.rn.sat.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(1.0f / kLargest));
  return y;
}

// The sums of kColumns / kHeads queries x 2 keys, distributed over the four threads of a quad: each ends up with kHeld of them. Value v of
// a thread belongs to query query() + v / 2 and to key key() + 8 (v mod 2) of the 64.
template <int kHeads, int kColumns>
struct Sums {
  static constexpr int kAll = 2 * (kColumns / kHeads);
  static constexpr int kHeld = kAll >= 4 ? kAll / 4 : 1;
  static constexpr int kHeldKeys = kHeld == 1 ? 1 : 2;
  float value[kAll];  // index: 2 * query + key

  static __device__ __forceinline__ int first() {
    const int lane = threadIdx.x & 3;
    return kAll >= 4 ? lane * kHeld : lane >> 1;
  }
  static __device__ __forceinline__ int query() { return first() / 2; }
  static __device__ __forceinline__ int key() {
    return 16 * (threadIdx.x / 32 % 4) + threadIdx.x % 32 / 4 + 8 * (first() & 1);
  }
  // If there are two sums, two threads hold each, and one of them writes it.
  static __device__ __forceinline__ bool writes() { return kAll >= 4 || (threadIdx.x & 1) == 0; }

  __device__ __forceinline__ void add_up(const float (&d)[kColumns / 2], const float (&w)[kColumns / 4]) {
    // Even and odd heads are added apart, in their order, then the two sums, then the quad's threads: the order of additions, and so
    // every bit of a score, is the same for any number of queries and keys at a time.
    //
    // ReLU is a maximum for even heads and a saturating product for odd ones, because two units execute them. A product of 128 dims is at most
    // 128 * 448^2 < 2^25, so that 2^-25 of it is at most 1. Scaling by a power of two changes no bits.
    constexpr int kAtOnce = kAll > 8 ? 8 : kAll;  // sums at a time: their chains of additions hide each other's latency
#pragma unroll
    for (int from = 0; from < kAll; from += kAtOnce) {
      float even[kAtOnce], odd[kAtOnce];
#pragma unroll
      for (int i = 0; i < kHeads / 4; ++i)
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
          const int group = (from + n) / 2 * (kHeads / 8) + i / 2;
          const float x = d[4 * group + 2 * (n & 1) + (i & 1)], weight = w[2 * group + (i & 1)];
          if (i & 1)
            odd[n] = i == 1 ? saturated(x) * weight : fmaf(saturated(x), weight, odd[n]);
          else
            even[n] = i == 0 ? fmaxf(x, 0.0f) * weight : fmaf(fmaxf(x, 0.0f), weight, even[n]);
        }
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) value[from + n] = fmaf(odd[n], kLargest, even[n]);
    }
    exchange<kAll, 2>();
  }

 private:
  template <int kLeft, int kMask>
  __device__ __forceinline__ void exchange() {
    if constexpr (kMask > 0) {
      if constexpr (kLeft > 1) {  // each of two threads keeps half of the sums
        const bool upper = threadIdx.x & kMask;
#pragma unroll
        for (int n = 0; n < kLeft / 2; ++n) {
          const float mine = upper ? value[n + kLeft / 2] : value[n], other = upper ? value[n] : value[n + kLeft / 2];
          value[n] = mine + __shfl_xor_sync(~0u, other, kMask);
        }
        exchange<kLeft / 2, kMask / 2>();
      } else {
        value[0] += __shfl_xor_sync(~0u, value[0], kMask);
        exchange<1, kMask / 2>();
      }
    }
  }
};

}  // namespace indexer

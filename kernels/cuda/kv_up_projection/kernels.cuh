// The two halves of kv_b_proj for one token. The time of both is that of reading the weights once: each thread loads its own part of the
// weights into registers, or a CTA its head's into shared memory, and multiplies it with the token in fp32. More tokens go to the tensor
// cores (in_order.cuh, many_tokens.cuh).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "../common/lane_sums.cuh"
#include "../common/pdl.cuh"
#include "../common/ptx.cuh"

namespace kv_up_projection {

constexpr int kThreads = 256;
constexpr int kNope = 128;     // rows of wk, and of wv, per head
constexpr int kColumns = 128;  // columns of wk per CTA
constexpr unsigned kAll = ~0u;

__device__ __forceinline__ float low_of(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_of(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }
__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ void unpack(float (&x)[8], const uint4& v) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) x[2 * i] = low_of(words[i]), x[2 * i + 1] = high_of(words[i]);
}
__device__ __forceinline__ uint4 load_weights(const __nv_bfloat16* source) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(source));
  return v;
}

struct Queries {
  const __nv_bfloat16* q;   // [tokens, heads, kNope + rope]
  const float *cos, *sin;   // [tokens, rope / 2]
  const __nv_bfloat16* wk;  // [heads, kNope, latent]
  __nv_bfloat16* out;       // [tokens, heads, latent + rope]
  int64_t q_token, q_head, wk_head;  // strides
  int tokens, heads, rope, latent;
  bool static_weights;  // the previous kernel has not written wk
};

// RoPE of an interleaved pair. The products and their sum are rounded separately, as in the reference.
__device__ __forceinline__ uint32_t rotated(uint32_t word, float cosine, float sine) {
  const float even = low_of(word), odd = high_of(word);
  return pack(__fsub_rn(__fmul_rn(even, cosine), __fmul_rn(odd, sine)), __fadd_rn(__fmul_rn(even, sine), __fmul_rn(odd, cosine)));
}
// The same of one token's head.
__device__ __forceinline__ void rotate_pair(const Queries& p, int token, int head, int pair) {
  const uint32_t word = reinterpret_cast<const uint32_t*>(p.q + token * p.q_token + head * p.q_head + kNope)[pair];
  uint32_t* out = reinterpret_cast<uint32_t*>(p.out + (int64_t(token) * p.heads + head) * (p.latent + p.rope) + p.latent);
  out[pair] = rotated(word, p.cos[token * (p.rope / 2) + pair], p.sin[token * (p.rope / 2) + pair]);
}

// Four pairs at once; the rotated dims are a multiple of 8.
struct Quad {
  uint4 words;
  float4 cosine, sine;

  __device__ __forceinline__ void load(const Queries& p, int token, int head, int quad) {
    words = reinterpret_cast<const uint4*>(p.q + token * p.q_token + head * p.q_head + kNope)[quad];
    cosine = reinterpret_cast<const float4*>(p.cos + int64_t(token) * (p.rope / 2))[quad];
    sine = reinterpret_cast<const float4*>(p.sin + int64_t(token) * (p.rope / 2))[quad];
  }
  __device__ __forceinline__ void store(const Queries& p, int token, int head, int quad) const {
    const uint4 turned = {rotated(words.x, cosine.x, sine.x), rotated(words.y, cosine.y, sine.y), rotated(words.z, cosine.z, sine.z),
                          rotated(words.w, cosine.w, sine.w)};
    reinterpret_cast<uint4*>(p.out + (int64_t(token) * p.heads + head) * (p.latent + p.rope) + p.latent)[quad] = turned;
  }
};
__global__ void __launch_bounds__(kThreads) rotate_queries_kernel(Queries p) {
  common::pdl_launch_dependents();
  common::pdl_wait();
  const int quads = p.rope / 8;
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= int64_t(p.tokens) * p.heads * quads) return;
  const int64_t row = at / quads;
  const int token = static_cast<int>(row / p.heads), head = static_cast<int>(row % p.heads), quad = static_cast<int>(at - row * quads);
  Quad held;
  held.load(p, token, head, quad);
  held.store(p, token, head, quad);
}

// A CTA computes one head and 128 columns of one token. Sixteen threads load a row of 128 columns, so that a thread has every 16th row.
__global__ void __launch_bounds__(kThreads) absorb_query_kernel(Queries p) {
  __shared__ float query[kNope];
  __shared__ float sums[kThreads / 32][kColumns];
  common::pdl_launch_dependents();
  const int head = blockIdx.y, column = blockIdx.x * kColumns;
  const int piece = threadIdx.x % 16, row = threadIdx.x / 16, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const __nv_bfloat16* weights = p.wk + head * p.wk_head + int64_t(row) * p.latent + column + piece * 8;
  if (!p.static_weights) common::pdl_wait();
  uint4 held[kNope / 16];
#pragma unroll
  for (int i = 0; i < kNope / 16; ++i) held[i] = load_weights(weights + int64_t(16 * i) * p.latent);
  common::pdl_wait();

  if (threadIdx.x < kNope) query[threadIdx.x] = __bfloat162float(p.q[head * p.q_head + threadIdx.x]);
  if (blockIdx.x == 0)
    for (int i = threadIdx.x; i < p.rope / 2; i += kThreads) rotate_pair(p, 0, head, i);
  __syncthreads();
  float total[8] = {};
#pragma unroll
  for (int i = 0; i < kNope / 16; ++i) {
    float w[8];
    unpack(w, held[i]);
    const float x = query[row + 16 * i];
#pragma unroll
    for (int j = 0; j < 8; ++j) total[j] = fmaf(x, w[j], total[j]);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    total[j] += __shfl_xor_sync(kAll, total[j], 16);
    if (lane < 16) sums[warp][piece * 8 + j] = total[j];
  }
  __syncthreads();
  if (threadIdx.x >= kColumns / 2) return;
  const int c = threadIdx.x * 2;
  float low = 0.0f, high = 0.0f;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) low += sums[w][c], high += sums[w][c + 1];
  *reinterpret_cast<uint32_t*>(p.out + int64_t(head) * (p.latent + p.rope) + column + c) = pack(low, high);
}

struct Values {
  const __nv_bfloat16* latents;  // [tokens, heads, latent]
  const __nv_bfloat16* wv;       // [heads, 128, latent]
  uint8_t* values;               // e4m3 [tokens, heads * 128]
  float* scales;                 // [tokens, heads]
  int64_t token, head, wv_head;  // strides
  int tokens, heads;
  bool static_weights;  // the previous kernel has not written wv
};

// One token's values of a head, which a warp quantises.
template <bool kUe8m0>
__device__ __forceinline__ void quantize_head(const Values& p, const float* from, int64_t row, int head) {
  const int lane = threadIdx.x % 32;
  // The quantiser gives the same bits as the reference: see kernels/tile/lanes.py.
  const float4 x = reinterpret_cast<const float4*>(from)[lane];
  const float values[4] = {x.x, x.y, x.z, x.w};
  uint32_t top = 0x38D1B717u;  // 1e-4
#pragma unroll
  for (int i = 0; i < 4; ++i) top = max(top, __float_as_uint(values[i]) & 0x7FFFFFFFu);
  top = __reduce_max_sync(kAll, top);
  const float quotient = __fdiv_rn(__uint_as_float(top), 448.0f);
  const float rounded = kUe8m0 ? __uint_as_float((__float_as_uint(quotient) + 0x7FFFFFu) & 0xFF800000u) : quotient;
  const float scale = fmaf(quotient, 0.0f, rounded);  // NaN for infinity and NaN
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    codes |= uint32_t(__nv_cvt_float_to_fp8(__fdiv_rn(values[i], scale), __NV_SATFINITE, __NV_E4M3)) << 8 * i;
  reinterpret_cast<uint32_t*>(p.values + (row * p.heads + head) * kNope)[lane] = codes;
  if (lane == 0) p.scales[row * p.heads + head] = scale;
}

// A CTA computes the 128 values of one head of one token, which are one group of the quantiser; there are 512 latent dims. A warp takes 16 rows
// of wv, eight at a time.
constexpr int kLatent = 512, kWeightBytes = kNope * kLatent * 2;
template <bool kUe8m0>
__global__ void __launch_bounds__(kThreads) expand_quantize_kernel(Values p) {
  constexpr int kRows = 8, kLanes = 32 / kRows;  // lanes that end up with the same sum
  extern __shared__ __align__(128) uint8_t memory[];  // wv of the head
  __shared__ __align__(16) float results[kNope];      // read as float4
  __shared__ uint64_t barrier;
  common::pdl_launch_dependents();
  const int head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint4* weights = reinterpret_cast<const uint4*>(memory) + warp * 16 * (kLatent / 8) + lane;
  const uint32_t copied = common::shared_address(&barrier);
  if (!p.static_weights) common::pdl_wait();
  if (threadIdx.x == 0) {  // the head's weights are one piece of memory; they arrive while attention still runs
    common::barrier_init(copied, 1);
    common::barrier_init_fence();
    common::barrier_arrive_expect(copied, kWeightBytes);
    common::copy_bulk(common::shared_address(memory), p.wv + head * p.wv_head, kWeightBytes, copied);
  }
  common::pdl_wait();
  uint4 latents[2];
#pragma unroll
  for (int c = 0; c < 2; ++c) latents[c] = *reinterpret_cast<const uint4*>(p.latents + head * p.head + lane * 8 + 256 * c);
  __syncthreads();  // the barrier is there
  common::barrier_wait(copied, 0);
#pragma unroll
  for (int batch = 0; batch < 2; ++batch) {
    float sums[kRows] = {};
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float x[8];
      unpack(x, latents[c]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float w[8];
        unpack(w, weights[(batch * kRows + r) * (kLatent / 8) + 32 * c]);
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[r] = fmaf(w[j], x[j], sums[r]);
      }
    }
    const float sum = common::sums_over_lanes(sums, lane);
    if (lane % kLanes == 0) results[warp * 16 + batch * kRows + lane / kLanes] = __bfloat162float(__float2bfloat16_rn(sum));
  }
  __syncthreads();
  if (warp == 0) quantize_head<kUe8m0>(p, results, 0, head);
}

}  // namespace kv_up_projection

// Code that the kernels of the two halves of kv_b_proj share. For few tokens (in_order.cuh) the time is that of reading the weights once, for many
// (many_tokens.cuh) that of reading and writing the tokens' rows.
#pragma once

#include "../common/groups.cuh"
#include "../common/pdl.cuh"

namespace kv_up_projection {

using namespace common;

constexpr int kThreads = 256;
constexpr int kNope = 128;  // rows of wk, and of wv, per head
constexpr unsigned kAll = ~0u;

__device__ __forceinline__ uint32_t pack(float low, float high) { return common::pack<__nv_bfloat16>(low, high); }
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

// RoPE of a pair of one token's head.
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

constexpr int kLatent = 512, kWeightBytes = kNope * kLatent * 2;

}  // namespace kv_up_projection

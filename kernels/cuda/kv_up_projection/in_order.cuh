// The two halves of kv_b_proj as one chain of MMAs over K, ascending, for up to kTokens tokens: the bits of a matrix product on the tensor cores,
// whatever the number of tokens (docs/determinism.md). The weights are the M of an MMA, the tokens its N.
//
// A slice of K is 16 dims. Lane t of a quad has dims 4 t ... 4 t + 3 of both operands, so that it loads 8 bytes at once: the order inside a
// slice changes no bit.
#pragma once

#include "../common/groups.cuh"
#include "../common/pdl.cuh"

namespace kv_up_projection {

using namespace common;

// ---- What these kernels and those for many tokens (many_tokens.cuh) share. For few tokens the time is that of reading the weights once, for
// many that of reading and writing the tokens' rows.

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

// ---- The kernels for few tokens.

constexpr int kTokens = 8;  // up to which these kernels are faster (docs/log/layer.md)

// A CTA computes one head, whose 512 latent dims are 64 for each warp. Rows 8 g + 2 j and 8 g + 2 j + 1 of a warp's 64 are rows g and g + 8
// of its MMA number j.
__global__ void __launch_bounds__(kThreads, 1) absorb_queries_in_order_kernel(Queries p) {
  common::pdl_launch_dependents();
  const int head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int column = warp * 64 + g * 8;
  const __nv_bfloat16* weights = p.wk + head * p.wk_head + int64_t(4 * t) * p.latent + column;
  if (!p.static_weights) common::pdl_wait();
  uint4 w[kNope / 16][4];
#pragma unroll
  for (int slice = 0; slice < kNope / 16; ++slice)
#pragma unroll
    for (int i = 0; i < 4; ++i) w[slice][i] = load_weights(weights + int64_t(16 * slice + i) * p.latent);
  common::pdl_wait();

  for (int i = threadIdx.x; i < p.tokens * (p.rope / 2); i += kThreads) rotate_pair(p, i / (p.rope / 2), head, i % (p.rope / 2));
  uint2 q[kNope / 16] = {};
  if (g < p.tokens)
#pragma unroll
    for (int slice = 0; slice < kNope / 16; ++slice)
      q[slice] = *reinterpret_cast<const uint2*>(p.q + g * p.q_token + head * p.q_head + 16 * slice + 4 * t);
  float total[4][4] = {};
#pragma unroll
  for (int slice = 0; slice < kNope / 16; ++slice) {
    const auto add = [&](float (&d)[4], uint32_t k0, uint32_t k1, uint32_t k2, uint32_t k3) {
      multiply_add(d, {__byte_perm(k0, k1, 0x5410), __byte_perm(k0, k1, 0x7632), __byte_perm(k2, k3, 0x5410), __byte_perm(k2, k3, 0x7632)},
                   q[slice].x, q[slice].y);
    };
    const uint4(&k)[4] = w[slice];
    add(total[0], k[0].x, k[1].x, k[2].x, k[3].x);
    add(total[1], k[0].y, k[1].y, k[2].y, k[3].y);
    add(total[2], k[0].z, k[1].z, k[2].z, k[3].z);
    add(total[3], k[0].w, k[1].w, k[2].w, k[3].w);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = 2 * t + i;
    if (token >= p.tokens) continue;
    *reinterpret_cast<uint4*>(p.out + (int64_t(token) * p.heads + head) * (p.latent + p.rope) + column) =
        make_uint4(pack(total[0][i], total[0][2 + i]), pack(total[1][i], total[1][2 + i]), pack(total[2][i], total[2][2 + i]),
                   pack(total[3][i], total[3][2 + i]));
  }
}

// A CTA computes the 128 values of one head. A warp has 16 of them.
constexpr int kWeightPitch = kLatent * 2 + 32;  // bytes: the 8 bytes that lanes of four rows read at once lie in different banks
template <bool kUe8m0>
__global__ void __launch_bounds__(kThreads, 1) expand_quantize_in_order_kernel(Values p) {
  constexpr int kSlices = kLatent / 16, kPieces = kLatent / 8;
  extern __shared__ __align__(128) uint8_t memory[];  // wv of the head
  __shared__ __align__(16) float results[kTokens][kNope];  // read as float4
  common::pdl_launch_dependents();
  const int head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (!p.static_weights) common::pdl_wait();
  const uint32_t to = common::shared_address(memory);
#pragma unroll 8
  for (int i = threadIdx.x; i < kNope * kPieces; i += kThreads)
    common::copy16<0>(to + i / kPieces * kWeightPitch + i % kPieces * 16, p.wv + head * p.wv_head + i * 8, 16);
  asm volatile("cp.async.commit_group;" ::: "memory");
  common::pdl_wait();
  const __nv_bfloat16* latents = p.latents + g * p.token + head * p.head + 4 * t;
  uint2 x[kSlices] = {};
  if (g < p.tokens)
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) x[slice] = *reinterpret_cast<const uint2*>(latents + 16 * slice);
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  const uint8_t* weights = memory + (warp * 16 + g) * kWeightPitch + 8 * t;
  float total[4] = {};
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) {
    const uint2 upper = *reinterpret_cast<const uint2*>(weights + 32 * slice);
    const uint2 lower = *reinterpret_cast<const uint2*>(weights + 8 * kWeightPitch + 32 * slice);
    multiply_add(total, {upper.x, lower.x, upper.y, lower.y}, x[slice].x, x[slice].y);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    results[2 * t + i % 2][warp * 16 + g + i / 2 * 8] = __bfloat162float(__float2bfloat16_rn(total[i]));
  __syncthreads();
  if (warp < p.tokens) quantize_head<kUe8m0>(p, results[warp], warp, head);
}

}  // namespace kv_up_projection

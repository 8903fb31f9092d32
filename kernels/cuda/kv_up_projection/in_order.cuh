// The same products as one chain of MMAs over K, ascending, for up to kTokens tokens: the bits of a matrix product on the tensor cores,
// whatever the number of tokens (docs/determinism.md). The weights are the M of an MMA, the tokens its N.
//
// A slice of K is 16 dims. Lane t of a quad has dims 4 t ... 4 t + 3 of both operands, so that it loads 8 bytes at once: the order inside a
// slice changes no bit.
#pragma once

#include "kernels.cuh"

namespace kv_up_projection {

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

// The products of products.cuh for many tokens: a CTA computes 64 rows of the weight for 128 or 32 tokens, with all columns. Its two
// warpgroups have halves of the tokens. The weight's parts are the operand of a WGMMA that is in registers, the tokens the one in shared
// memory: a slice has the bits that mma.sync gives it.
#pragma once

#include "products.cuh"

namespace fp32_ops {

constexpr int kRowsOfCta = 64;
constexpr int kWeightPitch = 4 * kChain + 32;  // bytes, so that the lanes of a load use all banks
constexpr int kLineBytes = 128;                // of tokens: 64 columns under the 128-byte swizzle

template <int kGroupTokens>
struct ManyProduct;
template <>
struct ManyProduct<64> : cute::SM90::GMMA::MMA_64x64x16_F32BF16BF16_RS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K> {};
template <>
struct ManyProduct<16> : cute::SM90::GMMA::MMA_64x16x16_F32BF16BF16_RS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K> {};

template <int kGroupTokens>
struct Many {
  static constexpr int kTokens = 2 * kGroupTokens, kStages = 3, kSums = kGroupTokens / 2;
  static constexpr int kHalfBytes = kTokens * kLineBytes;  // 64 of the columns of a chain, for all tokens
  static constexpr int kStageBytes = kRowsOfCta * kWeightPitch + 2 * kHalfBytes, kBytes = kStages * kStageBytes;
  static_assert(kRowsOfCta * kWeightPitch % 1024 == 0 && kStageBytes % 1024 == 0);

  template <size_t... I>
  static __device__ __forceinline__ void multiply(float (&d)[kSums], const uint32_t (&a)[4], uint64_t b, std::index_sequence<I...>) {
    ManyProduct<kGroupTokens>::fma(a[0], a[1], a[2], a[3], b, d[I]..., cute::SM90::GMMA::ScaleOut::One);
  }
};

template <int kGroupTokens>
__global__ void __launch_bounds__(kThreads, 1) fp32_many_products_kernel(Linear p) {
  using Shape = Many<kGroupTokens>;
  extern __shared__ __align__(1024) char stages[];
  common::pdl_launch_dependents();
  const int row = blockIdx.y * kRowsOfCta, first = blockIdx.x * Shape::kTokens;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int chains = (p.width + kChain - 1) / kChain;
  common::pdl_wait();
  const auto load = [&](int chain) {
    if (chain < chains) {
      char* weights = stages + chain % Shape::kStages * Shape::kStageBytes;
      char* tokens = weights + kRowsOfCta * kWeightPitch;
#pragma unroll
      for (int i = threadIdx.x; i < kRowsOfCta * kChain / 4; i += kThreads) {
        const int r = i / (kChain / 4), at = i % (kChain / 4), c = chain * kChain + at * 4;
        const bool exists = row + r < p.rows && c < p.width;
        common::copy16<0>(common::shared_address(weights + r * kWeightPitch + at * 16),
                          p.weight + (exists ? int64_t(row + r) * p.width + c : 0), exists ? 16 : 0);
      }
#pragma unroll
      for (int i = threadIdx.x; i < Shape::kTokens * kChain / 8; i += kThreads) {
        const int t = i / (kChain / 8), at = i % (kChain / 8), c = chain * kChain + at * 8;
        const bool exists = first + t < p.tokens && c < p.width;
        common::copy16<0>(common::shared_address(tokens + at / 8 * Shape::kHalfBytes + t * kLineBytes + ((at % 8 ^ t % 8) << 4)),
                          static_cast<const __nv_bfloat16*>(p.x) + (exists ? (first + t) * p.stride + c : 0), exists ? 16 : 0);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  float whole[Shape::kSums] = {}, total[Shape::kSums] = {};  // of all columns; of up to 1024
  load(0), load(1);
  for (int chain = 0; chain < chains; ++chain) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();  // this chain's columns are there, and all warps are done with the stage that is loaded next
    common::fence_async_proxy();
    load(chain + 2);
    const char* stage = stages + chain % Shape::kStages * Shape::kStageBytes;
    const char* weights = stage + (warp * kTileRows + lane / 4) * kWeightPitch + lane % 4 * 8;
    const common::Tile tokens =
        common::Tile::rows(common::shared_address(stage + kRowsOfCta * kWeightPitch + group * kGroupTokens * kLineBytes));
    float sums[3][Shape::kSums] = {};
    uint32_t parts[2][3][4];
#pragma unroll
    for (int i = 0; i < kSlices; ++i) {
#pragma unroll
      for (int x = 0; x < 4; ++x) {  // rows g and g + 8 of the columns 2 t and 2 t + 1, then those of the columns 8 later
        const float2 w = *reinterpret_cast<const float2*>(weights + x % 2 * 8 * kWeightPitch + 64 * i + x / 2 * 32);
        split(w.x, w.y, parts[i % 2][0][x], parts[i % 2][1][x], parts[i % 2][2][x]);
      }
      common::mma_begin();
#pragma unroll
      for (int part = 2; part >= 0; --part)
        Shape::multiply(sums[part], parts[i % 2][part], tokens.at(i / 4 * Shape::kHalfBytes + i % 4 * 32),
                        std::make_index_sequence<Shape::kSums>());
      common::mma_commit();
      if (i + 1 < kSlices)
        common::mma_wait<1>();  // the parts of the slice before are free
      else
        common::mma_wait<0>();
    }
#pragma unroll
    for (int part = 0; part < 3; ++part) common::hold(sums[part]);
    const bool last = chain % kChains == kChains - 1 || chain == chains - 1;
#pragma unroll
    for (int j = 0; j < Shape::kSums; ++j) {
      total[j] += (sums[2][j] + sums[1][j]) + sums[0][j];
      if (last) whole[j] += total[j], total[j] = 0.0f;
    }
  }
#pragma unroll
  for (int j = 0; j < Shape::kSums; ++j) {
    const int r = row + warp * kTileRows + lane / 4 + j / 2 % 2 * 8;
    const int token = first + group * kGroupTokens + j / 4 * 8 + lane % 4 * 2 + j % 2;
    if (r < p.rows && token < p.tokens) p.out[int64_t(token) * p.rows + r] = whole[j] * p.scale;
  }
}

}  // namespace fp32_ops

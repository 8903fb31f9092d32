// Projections of more than kLinearTokens tokens: up to kFewTokens by mma.sync, as in products.cuh, more by WGMMA. With WGMMA a CTA computes 64
// or 16 rows of the weight for 128 tokens, over all columns. Its two warpgroups have 64 tokens each, which are the M of an MMA. The three
// parts of the weights are stacked as its N, so that one MMA multiplies a slice of 16 columns with all of them. A slice has the bits that
// mma.sync gives it.
#pragma once

#include "products.cuh"

namespace fp32_ops {

constexpr int kFewTokens = 512;  // of bf16; beyond, tiles of all columns keep all multiprocessors busy

__global__ void __launch_bounds__(kThreads) fp32_products_kernel(Linear p) {
  extern __shared__ __align__(16) char memory[];
  Few few(p, memory, blockIdx.x, blockIdx.y);
  if (!p.static_weights) common::pdl_wait();
  few.load_weights();
  few.prepare_barriers();
  common::pdl_wait();
  common::pdl_launch_dependents();  // not earlier: ../pdl.py
  few.finish();
}

constexpr int kLineBytes = 128;  // of an operand: 64 columns under the 128-byte swizzle
constexpr int kManyTokens = 128, kTokenHalf = kManyTokens * kLineBytes;  // bytes of 64 columns

template <int kRows>
struct Many {
  static constexpr int kColumns = kRows == 64 ? 192 : 64;  // the N of an MMA: three parts; of 16 rows there is room for a fourth
  static constexpr int kHalf = kColumns * kLineBytes, kStages = 4, kBytes = 4 * kHalf + 2 * kStages * kTokenHalf;
  static constexpr int kHeldRows = kRows * (kChain / 4) / kThreads;  // float4s of a chain's weights that a thread holds
  static constexpr int kSums = kRows / 2;                            // results of a thread
  static_assert(kBytes <= 227 * 1024 && kHalf % 1024 == 0);
  using Product = std::conditional_t<
      kRows == 64, cute::SM90::GMMA::MMA_64x192x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K>,
      cute::SM90::GMMA::MMA_64x64x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K>>;
};

template <int kRows>
__global__ void __launch_bounds__(kThreads, 1) fp32_many_products_kernel(Linear p) {
  using Shape = Many<kRows>;
  extern __shared__ __align__(1024) char operands[];  // the weights' parts of two chains, then the tokens of four
  common::pdl_launch_dependents();
  const int row = blockIdx.y * kRows, first = blockIdx.x * kManyTokens;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int chains = (p.width + kChain - 1) / kChain;
  const auto parts_of = [&](int chain) { return operands + chain % 2 * 2 * Shape::kHalf; };
  const auto tokens_of = [&](int chain) { return operands + 4 * Shape::kHalf + chain % Shape::kStages * 2 * kTokenHalf; };
  const auto copy_tokens = [&](int chain) {
    if (chain < chains) {
      char* tokens = tokens_of(chain);
#pragma unroll
      for (int i = threadIdx.x; i < kManyTokens * kChain / 8; i += kThreads) {
        const int t = i / (kChain / 8), at = i % (kChain / 8), c = chain * kChain + at * 8;
        const bool exists = first + t < p.tokens && c < p.width;
        common::copy16<0>(common::shared_address(tokens + at / 8 * kTokenHalf + t * kLineBytes + ((at % 8 ^ t % 8) << 4)),
                          static_cast<const __nv_bfloat16*>(p.x) + (exists ? (first + t) * p.stride + c : 0), exists ? 16 : 0);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  float4 held[Shape::kHeldRows];
  const auto load_weights = [&](int chain) {
#pragma unroll
    for (int k = 0; k < Shape::kHeldRows; ++k) {
      const int i = threadIdx.x + k * kThreads, r = row + i / (kChain / 4), c = chain * kChain + i % (kChain / 4) * 4;
      held[k] = r < p.rows && c < p.width ? load4(p.weight + int64_t(r) * p.width + c) : float4{};
    }
  };
  const auto store_parts = [&](int chain) {
    char* parts = parts_of(chain);
#pragma unroll
    for (int k = 0; k < Shape::kHeldRows; ++k) {
      const int i = threadIdx.x + k * kThreads, r = i / (kChain / 4), at = i % (kChain / 4);  // 8 bytes of each part
      uint2 words[3];
      split(held[k].x, held[k].y, words[0].x, words[1].x, words[2].x);
      split(held[k].z, held[k].w, words[0].y, words[1].y, words[2].y);
      char* to = parts + at / 16 * Shape::kHalf + r * kLineBytes + ((at % 16 / 2 ^ r % 8) << 4) + at % 2 * 8;
#pragma unroll
      for (int part = 0; part < 3; ++part) *reinterpret_cast<uint2*>(to + part * kRows * kLineBytes) = words[part];
    }
  };
  common::pdl_wait();
  copy_tokens(0), copy_tokens(1), copy_tokens(2);
  load_weights(0);
  store_parts(0);
  load_weights(1);
  float whole[Shape::kSums] = {}, total[Shape::kSums] = {};  // of all columns; of up to 1024
  for (int chain = 0; chain < chains; ++chain) {
    asm volatile("cp.async.wait_group 2;" ::: "memory");
    common::fence_async_proxy();
    __syncthreads();  // tokens and parts of this chain are there, and all warps are done with the chain before
    const common::Tile a = common::Tile::rows(common::shared_address(tokens_of(chain) + group * (kTokenHalf / 2)));
    const common::Tile b = common::Tile::rows(common::shared_address(parts_of(chain)));
    float sums[Shape::kColumns / 2] = {};
    common::hold(sums);
    common::mma_begin();
#pragma unroll
    for (int i = 0; i < kSlices; ++i)
      multiply_tiles<typename Shape::Product>(sums, a.at(i / 4 * kTokenHalf + i % 4 * 32), b.at(i / 4 * Shape::kHalf + i % 4 * 32));
    common::mma_commit();
    copy_tokens(chain + 3);
    store_parts(chain + 1);  // zeros beyond the last chain
    load_weights(chain + 2);
    common::mma_wait<0>();
    common::hold(sums);
    const bool last = chain % kChains == kChains - 1 || chain == chains - 1;
#pragma unroll
    for (int j = 0; j < Shape::kSums; ++j) {
      total[j] += (sums[2 * Shape::kSums + j] + sums[Shape::kSums + j]) + sums[j];
      if (last) whole[j] += total[j], total[j] = 0.0f;
    }
  }
#pragma unroll
  for (int j = 0; j < Shape::kSums; ++j) {
    const int token = first + group * 64 + warp * 16 + lane / 4 + j / 2 % 2 * 8, r = row + j / 4 * 8 + lane % 4 * 2 + j % 2;
    if (r < p.rows && token < p.tokens) p.out[int64_t(token) * p.rows + r] = whole[j] * p.scale;
  }
}

}  // namespace fp32_ops

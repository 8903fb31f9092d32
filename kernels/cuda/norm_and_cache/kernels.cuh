// The step after the first projections of a layer, in one launch: the norm of the compressed query with its FP8 operand, the cache entries of
// the latent and of the index key, and, for few tokens, the fp32 projection to the weights of the index heads. A warp takes one query, one
// latent or four keys; the projection has CTAs of its own (fp32_ops).
#pragma once

#include "../common/groups.cuh"
#include "../common/pdl.cuh"
#include "../fp32_ops/products.cuh"

namespace norm_and_cache {

using namespace common;

constexpr int kThreads = fp32_ops::kThreads, kWarps = kThreads / 32;
constexpr int kQueryGroups = 3, kQuery = kQueryGroups * 512;  // a group of each 8 lanes at a time; columns
constexpr int kLatent = 512, kRope = 64, kKey = 128, kPage = 64, kKeysOfWarp = 4;
constexpr int kRecord = kLatent + kLatent / kGroup * 4 + 2 * kRope, kIndexRecord = kKey + 4;

struct Rows {
  const __nv_bfloat16 *query, *kv, *keys;                       // [queries, 1536], [tokens, 576], [tokens, 128]
  int64_t query_stride, kv_stride, keys_stride;
  const float *query_gain, *kv_gain, *key_gain, *key_bias;      // weights of the norms
  const float *cos, *sin;                                       // [tokens, 32]
  const int64_t* slots;                                         // [tokens]
  uint8_t* codes;                                               // [queries, 1536], e4m3
  float* scales;                                                // [queries, 12]
  uint8_t *latents, *index;                                     // the caches
  int32_t *latent_column, *key_column;                          // where stamps go, or null
  const int32_t *latent_stamps, *key_stamps;                    // [tokens]
  float eps, key_eps;
  int queries, tokens;
  bool ue8m0, interleaved;
  bool static_weights;  // the previous kernel has not written the weights
};

// RMSNorm of a row of kGroups * 512 columns, rounded to bf16.
template <int kGroups>
__device__ __forceinline__ void norm_row(float (&values)[kGroups][kHeldOfGroup], const __nv_bfloat16* row,
                                         const float* gain, float eps, int lane) {
  float squares = 0.0f;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int column = column_of(4 * g + lane / kGroupLanes, lane);
    unpack8(values[g], *reinterpret_cast<const uint4*>(row + column));
    unpack8(values[g] + kPiece, *reinterpret_cast<const uint4*>(row + column + kApart));
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
#pragma unroll
    for (int i = 0; i < kHeldOfGroup; ++i) squares = fmaf(values[g][i], values[g][i], squares);
  const float factor = rms_factor(sum_of_lanes(squares), kGroups * 512, eps);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int i = 0; i < kHeldOfGroup; ++i) values[g][i] = values[g][i] * factor * gain[g * kHeldOfGroup + i];
    round8(values[g]), round8(values[g] + kPiece);
  }
}
__device__ __forceinline__ void query_row(const Rows& p, const float* gain, int token, int lane) {
  float values[kQueryGroups][kHeldOfGroup];
  norm_row(values, p.query + token * p.query_stride, gain, p.eps, lane);
#pragma unroll
  for (int g = 0; g < kQueryGroups; ++g) {
    uint2 codes[kPieces];
    const float scale = quantize_group(values[g], p.ue8m0, codes);
    const int group = 4 * g + lane / kGroupLanes, column = column_of(group, lane);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) *reinterpret_cast<uint2*>(p.codes + int64_t(token) * kQuery + column + i * kApart) = codes[i];
    if (lane % kGroupLanes == 0) p.scales[int64_t(token) * (kQuery / kGroup) + group] = scale;
  }
}

__device__ __forceinline__ void latent_row(const Rows& p, const float* gain, int token, int lane) {
  float values[1][kHeldOfGroup];
  const __nv_bfloat16* row = p.kv + token * p.kv_stride;
  const int64_t slot = p.slots[token];
  uint8_t* record = p.latents + slot * kRecord;
  if (p.latent_column != nullptr && lane == 0) p.latent_column[slot] = p.latent_stamps[token];
  const uint32_t pair = reinterpret_cast<const uint32_t*>(row + kLatent)[lane];
  const float cosine = p.cos[int64_t(token) * (kRope / 2) + lane], sine = p.sin[int64_t(token) * (kRope / 2) + lane];
  norm_row(values, row, gain, p.eps, lane);
  uint2 codes[kPieces];
  const float scale = quantize_group(values[0], true, codes);
  const int group = lane / kGroupLanes, column = column_of(group, lane);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) *reinterpret_cast<uint2*>(record + column + i * kApart) = codes[i];
  if (lane % kGroupLanes == 0) reinterpret_cast<float*>(record + kLatent)[group] = scale;
  reinterpret_cast<uint32_t*>(record + kLatent + kLatent / kGroup * 4)[lane] = rotated(pair, cosine, sine);
}

// (a, b) -> (a + b, a - b) for elements kStride apart.
template <int kStride>
__device__ __forceinline__ void butterflies(float (&values)[kHeldOfGroup]) {
#pragma unroll
  for (int i = 0; i < kHeldOfGroup; ++i)
    if ((i & kStride) == 0) {
      const float low = values[i], high = values[i + kStride];
      values[i] = low + high, values[i + kStride] = low - high;
    }
}

// LayerNorm, RoPE of the first 64 dims, Hadamard transform and quantisation; eight lanes a key. All lanes must call it.
__device__ __forceinline__ void key_rows(const Rows& p, const float* gain, const float* bias, int first_token, int lane) {
  const int own = lane % kGroupLanes, token = min(first_token + lane / kGroupLanes, p.tokens - 1), column = own * kPiece;
  float values[kHeldOfGroup];
  const __nv_bfloat16* row = p.keys + token * p.keys_stride;
  const int64_t slot = p.slots[token];
  unpack8(values, *reinterpret_cast<const uint4*>(row + column));
  unpack8(values + kPiece, *reinterpret_cast<const uint4*>(row + column + kApart));
  float cosines[kPiece], sines[kPiece];
  const int64_t angles = int64_t(token) * (kRope / 2) + (p.interleaved ? own * (kPiece / 2) : column % (kRope / 2));
#pragma unroll
  for (int i = 0; i < kPiece; ++i) cosines[i] = p.cos[angles + (p.interleaved ? i / 2 : i)], sines[i] = p.sin[angles + (p.interleaved ? i / 2 : i)];

  const auto sum_of_key = [](float x) {
#pragma unroll
    for (int level = 1; level < kGroupLanes; level *= 2) x += __shfl_xor_sync(~0u, x, level);
    return x;
  };
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kHeldOfGroup; ++i) sum += values[i];
  const float mean = sum_of_key(sum) / kKey;
#pragma unroll
  for (int i = 0; i < kHeldOfGroup; ++i) squares = fmaf(values[i] - mean, values[i] - mean, squares);
  const float factor = 1.0f / sqrtf(sum_of_key(squares) / kKey + p.key_eps);
#pragma unroll
  for (int i = 0; i < kHeldOfGroup; ++i) values[i] = (values[i] - mean) * factor * gain[i] + bias[i];
  round8(values), round8(values + kPiece);

  float others[kPiece];  // of the pairs that RoPE rotates
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    const float across = __shfl_xor_sync(~0u, values[i], kRope / 2 / kPiece);
    others[i] = p.interleaved ? values[i ^ 1] : across;
  }
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    const bool low = p.interleaved ? i % 2 == 0 : column < kRope / 2;
    values[i] = __fadd_rn(__fmul_rn(values[i], cosines[i]), __fmul_rn(others[i], low ? -sines[i] : sines[i]));
  }
  round8(values);

  butterflies<1>(values), butterflies<2>(values), butterflies<4>(values);
#pragma unroll
  for (int level = 1; level < kGroupLanes; level *= 2) {
    const float sign = own & level ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < kHeldOfGroup; ++i) values[i] = __shfl_xor_sync(~0u, values[i], level) + sign * values[i];
  }
  butterflies<kPiece>(values);
#pragma unroll
  for (int i = 0; i < kHeldOfGroup; ++i) values[i] *= 0.08838834764831845f;  // 128^-0.5
  round8(values), round8(values + kPiece);
  uint2 codes[kPieces];
  const float scale = quantize_group(values, true, codes);
  if (first_token + lane / kGroupLanes >= p.tokens) return;
  uint8_t* page = p.index + slot / kPage * (kPage * kIndexRecord);
  const int offset = static_cast<int>(slot % kPage);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) *reinterpret_cast<uint2*>(page + offset * kKey + column + i * kApart) = codes[i];
  if (own == 0) reinterpret_cast<float*>(page + kPage * kKey)[offset] = scale;
  if (p.key_column != nullptr && own == 0) p.key_column[slot] = p.key_stamps[token];
}

using Parameters = float[kQueryGroups * kHeldOfGroup];  // the gains of a norm; of a key, then its bias

__device__ __forceinline__ void load_parameters(const Rows& p, Parameters& parameters, int warp, int lane) {
  if (warp < p.queries) {
#pragma unroll
    for (int g = 0; g < kQueryGroups; ++g) load_gain(parameters + g * kHeldOfGroup, p.query_gain + column_of(4 * g + lane / kGroupLanes, lane));
  } else if (warp < p.queries + p.tokens) {
    load_gain(parameters, p.kv_gain + column_of(lane / kGroupLanes, lane));
  } else {
    load_gain(parameters, p.key_gain + column_of(0, lane)), load_gain(parameters + kHeldOfGroup, p.key_bias + column_of(0, lane));
  }
}

__device__ __forceinline__ void rows_of_warp(const Rows& p, const Parameters& parameters, int warp, int lane) {
  const int keys = p.queries + p.tokens;  // the first warp for them
  if (warp < p.queries)
    query_row(p, parameters, warp, lane);
  else if (warp < keys)
    latent_row(p, parameters, warp - p.queries, lane);
  else if (warp < keys + (p.tokens + kKeysOfWarp - 1) / kKeysOfWarp)
    key_rows(p, parameters, parameters + kHeldOfGroup, (warp - keys) * kKeysOfWarp, lane);
}

__global__ void __launch_bounds__(kThreads) norm_and_cache_kernel(Rows p) {
  pdl_launch_dependents();
  const int warp = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  Parameters parameters;
  if (!p.static_weights) pdl_wait();
  load_parameters(p, parameters, warp, lane);
  pdl_wait();
  rows_of_warp(p, parameters, warp, lane);
}

// With the projection of up to kTokens tokens, a row of the weight for each of the first CTAs.
template <int kTokens>
__global__ void __launch_bounds__(kThreads) norm_and_cache_linear_kernel(Rows p, fp32_ops::Linear projection) {
  pdl_launch_dependents();
  const bool projects = static_cast<int>(blockIdx.x) < projection.rows;
  const int warp = (static_cast<int>(blockIdx.x) - projection.rows) * kWarps + static_cast<int>(threadIdx.x) / 32, lane = threadIdx.x % 32;
  float4 held[1][fp32_ops::kHeld];
  Parameters parameters;
  if (!p.static_weights) pdl_wait();
  if (projects)
    fp32_ops::load_rows<1>(projection, blockIdx.x, held);
  else
    load_parameters(p, parameters, warp, lane);
  pdl_wait();
  if (projects)
    fp32_ops::multiply_rows<__nv_bfloat16, kTokens, 1>(projection, blockIdx.x, held);
  else
    rows_of_warp(p, parameters, warp, lane);
}

// With the projection of more tokens on the tensor cores, by `products` CTAs that come first. The clusters of all CTAs have its size.
__global__ void __launch_bounds__(kThreads) norm_and_cache_products_kernel(Rows p, fp32_ops::Linear projection, int products) {
  extern __shared__ __align__(16) char memory[];
  pdl_launch_dependents();
  const bool projects = static_cast<int>(blockIdx.x) < products;
  const int warp = (static_cast<int>(blockIdx.x) - products) * kWarps + static_cast<int>(threadIdx.x) / 32, lane = threadIdx.x % 32;
  fp32_ops::Few few(projection, memory, blockIdx.x, 0);
  Parameters parameters;
  if (!p.static_weights) pdl_wait();
  if (projects) {
    few.load_weights();
    few.prepare_barriers();
  } else {
    load_parameters(p, parameters, warp, lane);
  }
  pdl_wait();
  if (projects)
    few.finish();
  else
    rows_of_warp(p, parameters, warp, lane);
}

}  // namespace norm_and_cache

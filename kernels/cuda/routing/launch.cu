#include "few_tokens.cuh"

namespace routing {

Routing routing_of(TensorView logits, TensorView bias, TensorView experts, TensorView weights, int64_t groups, int64_t topk_groups,
                   bool normalise, double scale) {
  Routing p = {};
  p.logits = data<float>(logits);
  p.stride = logits.stride(0);
  p.bias = data<float>(bias);
  p.experts = data<int64_t>(experts);
  p.weights = data<float>(weights);
  p.tokens = static_cast<int>(logits.size(0));
  p.count = static_cast<int>(logits.size(1));
  p.topk = static_cast<int>(experts.size(1));
  p.groups = static_cast<int>(groups);
  p.topk_groups = static_cast<int>(topk_groups);
  p.normalise = normalise;
  p.scale = static_cast<float>(scale);
  return p;
}

Grouping grouping_of(TensorView experts, TensorView sorted_token_ids, TensorView inverse_permutation, TensorView offsets, int64_t first,
                     int64_t step) {
  Grouping p = {};
  p.experts = data<int64_t>(experts);
  p.sorted_token_ids = data<int32_t>(sorted_token_ids);
  p.inverse_permutation = data<int32_t>(inverse_permutation);
  p.offsets = data<int32_t>(offsets);
  p.pairs = static_cast<int>(sorted_token_ids.size(0));
  p.topk = static_cast<int>(experts.size(1));
  p.stride = experts.stride(0);
  p.count = static_cast<int>(offsets.size(0)) - 1;
  p.first = first;
  p.step = static_cast<uint32_t>(step);
  p.warps = std::min(32, std::max(1, (p.pairs + 31) / 32));
  return p;
}

// logits fp32 [T, E], bias fp32 [E] -> experts int64 [T, topk], weights fp32 [T, topk]. Up to 1024 experts in up to 32 groups, topk up to
// 32.
void route(TensorView logits, TensorView bias, TensorView experts, TensorView weights, int64_t groups, int64_t topk_groups,
           bool normalise, double scale) {
  DeviceGuard guard(logits);
  const Routing p = routing_of(logits, bias, experts, weights, groups, topk_groups, normalise, scale);
  const dim3 grid((p.tokens + kRouteWarps - 1) / kRouteWarps);
  const int shared = kRouteWarps * p.count * 4;
  if (p.count <= 256)
    launch_pdl(route_kernel<8>, grid, kRouteWarps * 32, shared, stream_of(logits), p);
  else
    launch_pdl(route_kernel<32>, grid, kRouteWarps * 32, shared, stream_of(logits), p);
}

// experts int64 [T, topk] -> sorted_token_ids int32 [T * topk], inverse_permutation int32 [T, topk], offsets int32 [E + 1], E up to 1023.
void group_by_expert(TensorView experts, TensorView sorted_token_ids, TensorView inverse_permutation, TensorView offsets, int64_t first,
                     int64_t step) {
  constexpr int kPairsOfCta = 1024;  // with more, a cluster shares them
  DeviceGuard guard(experts);
  Grouping p = grouping_of(experts, sorted_token_ids, inverse_permutation, offsets, first, step);
  const int cluster = std::min(8, (p.pairs + kPairsOfCta - 1) / kPairsOfCta);
  if (cluster > 1) p.warps = 32;
  const int threads = std::max(p.warps, (p.count + 1 + 31) / 32) * 32;
  const size_t shared = (p.warps + 1) * (p.count + 1) * 4;
  common::launch_kernel(cluster > 1 ? group_kernel<true> : group_kernel<false>,
                        {dim3(cluster), threads, shared, stream_of(experts), cluster, true}, p);
}

// Both for few tokens: E is a multiple of 32 up to 256, in groups of 32; up to 256 experts of this rank.
void route_and_group(TensorView logits, TensorView bias, TensorView experts, TensorView weights, TensorView sorted_token_ids,
                     TensorView inverse_permutation, TensorView offsets, int64_t groups, int64_t topk_groups, bool normalise, double scale,
                     int64_t first, int64_t step) {
  DeviceGuard guard(logits);
  const RoutingAndGrouping p = {routing_of(logits, bias, experts, weights, groups, topk_groups, normalise, scale),
                                grouping_of(experts, sorted_token_ids, inverse_permutation, offsets, first, step)};
  const int cluster = std::min(kMaxCluster, (p.routing.tokens + kTokensAtOnce - 1) / kTokensAtOnce);
  const size_t shared = p.grouping.warps * (p.grouping.count + 1) * 4;
  // A single CTA has only the threads that it needs, because they meet often: the tokens' threads, and one for each bucket.
  const int needed = std::max(p.routing.tokens * kTokenThreads, (p.grouping.count + 1 + 31) / 32 * 32);
  const int threads = cluster > 1 ? 1024 : std::max(needed, p.grouping.warps * 32);
  common::launch_kernel(route_and_group_kernel, {dim3(cluster), threads, shared, stream_of(logits), cluster, true}, p);
}

// codes e4m3 (as bytes) [T, D], scales fp32 [T, G], sorted_token_ids int32 [R], offsets int32 [E + 1] -> sorted_codes [R, D], sorted_scales
// [R, G], of which the rows from offsets[E] on are not written. D is a multiple of 16; rows of codes start on 16-byte boundaries.
void gather_rows(TensorView codes, TensorView scales, TensorView sorted_token_ids, TensorView offsets, TensorView sorted_codes,
                 TensorView sorted_scales) {
  DeviceGuard guard(codes);
  Gathering p = {};
  p.codes = data<uint4>(codes);
  p.scales = data<float>(scales);
  p.tokens = data<int32_t>(sorted_token_ids);
  p.end = data<int32_t>(offsets) + offsets.size(0) - 1;
  p.sorted_codes = data<uint4>(sorted_codes);
  p.sorted_scales = data<float>(sorted_scales);
  p.stride = codes.stride(0) / 16;
  p.scale_stride = scales.stride(0);
  p.rows = static_cast<int>(sorted_token_ids.size(0));
  p.pieces = static_cast<int>(codes.size(1) / 16);
  p.groups = static_cast<int>(scales.size(1));
  launch_pdl(gather_rows_kernel, dim3((p.rows + kGatherWarps - 1) / kGatherWarps), kGatherWarps * 32, 0, stream_of(codes), p);
}

Combination combination_of(TensorView rows, TensorView inverse_permutation, TensorView offsets, TensorView weights,
                           Optional<TensorView> shared) {
  Combination p = {};
  p.rows = data<void>(rows);
  p.stride = rows.stride(0);
  p.shared = data<void>(shared);
  p.shared_stride = shared.has_value() ? shared.value().stride(0) : 0;
  p.inverse_permutation = data<int32_t>(inverse_permutation);
  p.end = data<int32_t>(offsets) + offsets.size(0) - 1;
  p.weights = data<float>(weights);
  p.weight_stride = weights.stride(0);
  p.topk = static_cast<int>(inverse_permutation.size(1));
  p.width = static_cast<int>(rows.size(1));
  return p;
}

// rows [T * topk, D] and shared [T, D] (or none) of out's dtype, inverse_permutation int32 [T, topk], offsets int32 [E + 1], weights fp32
// [T, topk] -> out [T, D].
void combine_experts(TensorView rows, TensorView inverse_permutation, TensorView offsets, TensorView weights,
                     Optional<TensorView> shared, TensorView out) {
  DeviceGuard guard(rows);
  Combination p = combination_of(rows, inverse_permutation, offsets, weights, shared);
  p.out = data<void>(out);
  const cudaStream_t stream = stream_of(rows);
  const unsigned tokens = static_cast<unsigned>(out.size(0));
  const bool bf16 = out.dtype().code == kDLBfloat;
  const auto starts_at_16 = [&](const void* x, int64_t stride) {
    return reinterpret_cast<uintptr_t>(x) % 16 == 0 && stride * (bf16 ? 2 : 4) % 16 == 0;
  };
  const bool aligned = p.width % 8 == 0 && starts_at_16(p.rows, p.stride) && starts_at_16(p.shared, p.shared_stride) &&
                     starts_at_16(p.out, p.width);
  const int vectors = aligned ? p.width / 8 : p.width;
  const dim3 grid(tokens, (vectors + kCombineThreads - 1) / kCombineThreads);
  if (bf16)
    launch_pdl(aligned ? combine_kernel<__nv_bfloat16, 8> : combine_kernel<__nv_bfloat16, 1>, grid, kCombineThreads, 0, stream, p);
  else
    launch_pdl(aligned ? combine_kernel<float, 8> : combine_kernel<float, 1>, grid, kCombineThreads, 0, stream, p);
}

// The same sum in bf16, plus residual [T, D], normed with weight fp32 [D] -> total, normed [T, D], codes e4m3 (as bytes) [T, D], scales fp32
// [T, D / 128]. D is a multiple of 1024 from 2048 to 8192, all rows start on 16-byte boundaries.
void combine_norm_quantize(TensorView rows, TensorView inverse_permutation, TensorView offsets, TensorView weights,
                           Optional<TensorView> shared, TensorView residual, TensorView weight, TensorView total, TensorView normed,
                           TensorView codes, TensorView scales, double eps, bool ue8m0, bool static_gain) {
  DeviceGuard guard(rows);
  const CombinedNorm p = {combination_of(rows, inverse_permutation, offsets, weights, shared),
                          common::normed_rows_of(residual, weight, total, normed, codes, scales, eps, ue8m0, static_gain)};
  const int tokens = static_cast<int>(residual.size(0)), cluster = p.sum.width / kColumnsOfCta;
  common::launch_kernel(combine_norm_kernel, {dim3(tokens * cluster), kNormThreads, 0, stream_of(rows), cluster, true}, p);
}

}  // namespace routing

TVM_FFI_DLL_EXPORT_TYPED_FUNC(route, routing::route);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(group_by_expert, routing::group_by_expert);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(route_and_group, routing::route_and_group);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(gather_rows, routing::gather_rows);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(combine_experts, routing::combine_experts);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(combine_norm_quantize, routing::combine_norm_quantize);

#include "../common/pdl.cuh"
#include "kernels.cuh"

namespace routing {

using common::check;
using common::data;
using common::DeviceGuard;
using common::launch_pdl;
using common::stream_of;
using tvm::ffi::Optional;
using tvm::ffi::TensorView;

// logits fp32 [T, E], bias fp32 [E] -> experts int64 [T, topk], weights fp32 [T, topk]. Up to 1024 experts in up to 32 groups, topk up to
// 32.
void route(TensorView logits, TensorView bias, TensorView experts, TensorView weights, int64_t groups, int64_t topk_groups,
           bool normalise, double scale) {
  DeviceGuard guard(logits);
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
  DeviceGuard guard(experts);
  Grouping p = {};
  p.experts = data<int64_t>(experts);
  p.sorted_token_ids = data<int32_t>(sorted_token_ids);
  p.inverse_permutation = data<int32_t>(inverse_permutation);
  p.offsets = data<int32_t>(offsets);
  p.pairs = static_cast<int>(sorted_token_ids.size(0));
  p.topk = static_cast<int>(experts.size(1));
  p.count = static_cast<int>(offsets.size(0)) - 1;
  p.first = first;
  p.step = static_cast<uint32_t>(step);
  p.warps = std::min(32, std::max(1, (p.pairs + 31) / 32));
  const int threads = std::max(p.warps, (p.count + 1 + 31) / 32) * 32;
  launch_pdl(group_kernel, dim3(1), threads, p.warps * (p.count + 1) * 4, stream_of(experts), p);
}

// rows [T * topk, D] and shared [T, D] (or none) of out's dtype, inverse_permutation int32 [T, topk], offsets int32 [E + 1], weights fp32
// [T, topk] -> out [T, D].
void combine_experts(TensorView rows, TensorView inverse_permutation, TensorView offsets, TensorView weights,
                     Optional<TensorView> shared, TensorView out) {
  DeviceGuard guard(rows);
  Combination p = {};
  p.rows = data<void>(rows);
  p.stride = rows.stride(0);
  p.shared = data<void>(shared);
  p.shared_stride = shared.has_value() ? shared.value().stride(0) : 0;
  p.inverse_permutation = data<int32_t>(inverse_permutation);
  p.end = data<int32_t>(offsets) + offsets.size(0) - 1;
  p.weights = data<float>(weights);
  p.out = data<void>(out);
  p.topk = static_cast<int>(inverse_permutation.size(1));
  p.width = static_cast<int>(out.size(1));
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

}  // namespace routing

TVM_FFI_DLL_EXPORT_TYPED_FUNC(route, routing::route);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(group_by_expert, routing::group_by_expert);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(combine_experts, routing::combine_experts);

#include <algorithm>

#include "many_tokens.cuh"

namespace kv_up_projection {

// A CTA for each head, and several if there are fewer heads than multiprocessors.
dim3 grid_of_many(const TensorView& tensor, int tokens, int heads) {
  const int tiles = (tokens + kTileTokens - 1) / kTileTokens;
  return dim3(heads, std::max(1, std::min(tiles, common::multiprocessors(tensor) / heads)));
}

// q bf16 [T, H, 128 + R], cos, sin fp32 [T, R/2], wk bf16 [H, 128, L] -> out bf16 [T, H, L + R]. If `all`, L is 512, and each sum is one chain
// of MMAs. Otherwise only the R rotated dims are written: out may be q, and of wk only L is used. R is a multiple of 8. The heads of q,
// the rows and heads of wk, and with more than kTokens tokens the rows of cos and sin, start on 16-byte boundaries.
void absorb_queries(TensorView q, TensorView cos, TensorView sin, TensorView wk, TensorView out, bool all, bool static_weights) {
  DeviceGuard guard(q);
  Queries p = {};
  p.q = data<__nv_bfloat16>(q);
  p.cos = data<float>(cos);
  p.sin = data<float>(sin);
  p.wk = data<__nv_bfloat16>(wk);
  p.out = data<__nv_bfloat16>(out);
  p.q_token = q.stride(0);
  p.q_head = q.stride(1);
  p.wk_head = wk.stride(0);
  p.tokens = static_cast<int>(q.size(0));
  p.heads = static_cast<int>(q.size(1));
  p.rope = static_cast<int>(2 * cos.size(1));
  p.latent = static_cast<int>(wk.size(2));
  p.static_weights = static_weights;
  const cudaStream_t stream = stream_of(q);
  const int64_t quads = int64_t(p.tokens) * p.heads * (p.rope / 8);
  if (!all)
    launch_pdl(rotate_queries_kernel, dim3(static_cast<unsigned>((quads + kThreads - 1) / kThreads)), kThreads, 0, stream, p);
  else if (p.tokens <= kTokens)
    launch_pdl(absorb_queries_in_order_kernel, dim3(p.heads), kThreads, 0, stream, p);
  else
    launch_pdl(absorb_queries_many_kernel, grid_of_many(q, p.tokens, p.heads), kManyThreads, sizeof(ManyMemory), stream, p);
}

// latents bf16 [T, H, 512] and wv bf16 [H, 128, 512], rows on 16-byte boundaries -> values e4m3 (as bytes) [T, H * 128], scales fp32
// [T, H], each sum as one chain of MMAs.
void expand_quantize(TensorView latents, TensorView wv, TensorView values, TensorView scales, bool ue8m0, bool static_weights) {
  DeviceGuard guard(latents);
  Values p = {};
  p.latents = data<__nv_bfloat16>(latents);
  p.wv = data<__nv_bfloat16>(wv);
  p.values = data<uint8_t>(values);
  p.scales = data<float>(scales);
  p.token = latents.stride(0);
  p.head = latents.stride(1);
  p.wv_head = wv.stride(0);
  p.tokens = static_cast<int>(latents.size(0));
  p.heads = static_cast<int>(latents.size(1));
  p.static_weights = static_weights;
  const cudaStream_t stream = stream_of(latents);
  if (p.tokens <= kTokens)
    launch_pdl(ue8m0 ? expand_quantize_in_order_kernel<true> : expand_quantize_in_order_kernel<false>, dim3(p.heads), kThreads,
               kNope * kWeightPitch, stream, p);
  else
    launch_pdl(ue8m0 ? expand_quantize_many_kernel<true> : expand_quantize_many_kernel<false>, grid_of_many(latents, p.tokens, p.heads),
               kManyThreads, sizeof(ManyMemory), stream, p);
}

}  // namespace kv_up_projection

TVM_FFI_DLL_EXPORT_TYPED_FUNC(absorb_queries, kv_up_projection::absorb_queries);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(expand_quantize, kv_up_projection::expand_quantize);

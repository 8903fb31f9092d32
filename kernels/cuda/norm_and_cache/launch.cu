#include "kernels.cuh"

namespace norm_and_cache {

// query bf16 [Q, 1536], kv bf16 [T, 576], keys bf16 [T, 128], rows on 16-byte boundaries; fp32 weights of their norms; cos, sin fp32 [T, 32];
// caches uint8, FP8 records; slots int64 [T]; stamps int32 [T] for columns int32 [S], or none -> codes e4m3 (as bytes) [Q, 1536], scales
// fp32 [Q, 12], and the entries of both caches. With x bf16 [Q, D], D a multiple of 8 up to 8192, and weight fp32 [N, D] also out fp32
// [Q, N] = scale * x weight^T; one_order: summed in one order whatever the number of tokens (../fp32_ops/products.cuh).
void norm_and_cache(TensorView query, TensorView kv, TensorView keys, TensorView query_gain, TensorView kv_gain, TensorView key_gain,
                    TensorView key_bias, TensorView cos, TensorView sin, TensorView latents, TensorView index, TensorView slots,
                    Optional<TensorView> latent_column, Optional<TensorView> latent_stamps, Optional<TensorView> key_column,
                    Optional<TensorView> key_stamps,
                    TensorView codes, TensorView scales, double eps, double key_eps, bool ue8m0, bool interleaved, bool static_weights,
                    Optional<TensorView> x, Optional<TensorView> weight, Optional<TensorView> out, double scale, bool one_order) {
  DeviceGuard guard(query);
  Rows p = {};
  p.query = data<__nv_bfloat16>(query), p.query_stride = query.stride(0);
  p.kv = data<__nv_bfloat16>(kv), p.kv_stride = kv.stride(0);
  p.keys = data<__nv_bfloat16>(keys), p.keys_stride = keys.stride(0);
  p.query_gain = data<float>(query_gain), p.kv_gain = data<float>(kv_gain);
  p.key_gain = data<float>(key_gain), p.key_bias = data<float>(key_bias);
  p.cos = data<float>(cos), p.sin = data<float>(sin);
  p.slots = data<int64_t>(slots);
  p.latent_column = data<int32_t>(latent_column), p.latent_stamps = data<int32_t>(latent_stamps);
  p.key_column = data<int32_t>(key_column), p.key_stamps = data<int32_t>(key_stamps);
  p.codes = data<uint8_t>(codes), p.scales = data<float>(scales);
  p.latents = data<uint8_t>(latents), p.index = data<uint8_t>(index);
  p.eps = static_cast<float>(eps), p.key_eps = static_cast<float>(key_eps);
  p.queries = static_cast<int>(query.size(0));
  p.tokens = static_cast<int>(kv.size(0));
  p.ue8m0 = ue8m0, p.interleaved = interleaved, p.static_weights = static_weights;
  const int warps = p.queries + p.tokens + (p.tokens + kKeysOfWarp - 1) / kKeysOfWarp, ctas = (warps + kWarps - 1) / kWarps;
  if (!x.has_value()) {
    common::launch_pdl(norm_and_cache_kernel, dim3(ctas), kThreads, 0, stream_of(query), p);
    return;
  }
  const fp32_ops::Linear projection = fp32_ops::linear_of(x.value(), weight.value(), out.value(), scale, static_weights);
  const cudaStream_t stream = stream_of(query);
  if (p.queries <= fp32_ops::kLinearTokens && !one_order) {
    const auto kernel = p.queries == 1 ? norm_and_cache_linear_kernel<1> : norm_and_cache_linear_kernel<fp32_ops::kLinearTokens>;
    common::launch_pdl(kernel, dim3(projection.rows + ctas), kThreads, 0, stream, p, projection);
    return;
  }
  const int cluster = fp32_ops::cluster_of(projection), products = fp32_ops::ctas_of(projection);
  const dim3 grid(products + (ctas + cluster - 1) / cluster * cluster);
  common::launch_kernel(norm_and_cache_products_kernel,
                        {grid, kThreads, static_cast<size_t>(fp32_ops::few_memory(projection)), stream, cluster, true}, p, projection,
                        products);
}

}  // namespace norm_and_cache

TVM_FFI_DLL_EXPORT_TYPED_FUNC(norm_and_cache, norm_and_cache::norm_and_cache);

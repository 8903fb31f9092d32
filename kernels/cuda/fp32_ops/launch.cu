#include "many_tokens.cuh"

namespace fp32_ops {

void run_products(const Linear& p, int multiprocessors, cudaStream_t stream) {
  if (p.tokens <= kFewTokens) {
    const dim3 grid(ctas_of(p), (p.tokens + kBatch - 1) / kBatch);
    common::launch_kernel(fp32_products_kernel, {grid, kThreads, static_cast<size_t>(few_memory(p)), stream, cluster_of(p), true}, p);
    return;
  }
  const auto grid = [&](int rows) { return dim3((p.tokens + kManyTokens - 1) / kManyTokens, (p.rows + rows - 1) / rows); };
  const dim3 wide = grid(64);
  if (static_cast<int>(wide.x * wide.y) >= multiprocessors * 3 / 4)
    launch_pdl(fp32_many_products_kernel<64>, wide, kThreads, Many<64>::kBytes, stream, p);
  else
    launch_pdl(fp32_many_products_kernel<16>, grid(16), kThreads, Many<16>::kBytes, stream, p);
}

template <class Element>
void run_linear(const Linear& p, cudaStream_t stream) {
  if (p.tokens == 1)
    launch_pdl(fp32_linear_kernel<Element, 1, 1>, dim3(p.rows), kThreads, 0, stream, p);
  else if (p.rows < 256)  // too few to give two rows to every multiprocessor
    launch_pdl(fp32_linear_kernel<Element, 4, 1>, dim3(p.rows), kThreads, 0, stream, p);
  else
    launch_pdl(fp32_linear_kernel<Element, 4, 2>, dim3((p.rows + 1) / 2), kThreads, 0, stream, p);
}

// x bf16 or fp32 [T, D], weight fp32 [N, D] -> out fp32 [T, N]. D is a multiple of 4 (bf16 x: 8) up to 8192; rows start on 16-byte
// boundaries. one_order: bf16 tokens are summed in one order whatever their number (products.cuh).
void fp32_linear(TensorView x, TensorView weight, TensorView out, double scale, bool static_weights, bool one_order) {
  DeviceGuard guard(x);
  const Linear p = linear_of(x, weight, out, scale, static_weights);
  if (x.dtype().code != kDLBfloat)
    run_linear<float>(p, stream_of(x));
  else if (p.tokens <= kLinearTokens && !one_order)
    run_linear<__nv_bfloat16>(p, stream_of(x));
  else
    run_products(p, common::multiprocessors(x), stream_of(x));
}

// x and out [T, D] bf16 or fp32, weight and bias fp32 [D]; D is at most 256.
void layer_norm(TensorView x, TensorView weight, TensorView bias, TensorView out, double eps) {
  DeviceGuard guard(x);
  Norm p = {};
  p.x = data<void>(x);
  p.weight = data<float>(weight);
  p.bias = data<float>(bias);
  p.out = data<void>(out);
  p.stride = x.stride(0);
  p.tokens = static_cast<int>(x.size(0));
  p.width = static_cast<int>(x.size(1));
  p.eps = static_cast<float>(eps);
  const auto kernel = x.dtype().code == kDLBfloat ? layer_norm_kernel<__nv_bfloat16> : layer_norm_kernel<float>;
  launch_pdl(kernel, dim3((p.tokens + kNormWarps - 1) / kNormWarps), kNormWarps * 32, 0, stream_of(x), p);
}

}  // namespace fp32_ops

TVM_FFI_DLL_EXPORT_TYPED_FUNC(fp32_linear, fp32_ops::fp32_linear);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(layer_norm, fp32_ops::layer_norm);

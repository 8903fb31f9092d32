// Host side: what every launcher needs.
#pragma once

#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <algorithm>

#include "split.cuh"

namespace mla {

using tvm::ffi::Optional;
using tvm::ffi::TensorView;

inline void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(code);
}

inline cudaStream_t stream_of(const TensorView& tensor) {
  const DLDevice device = tensor.device();
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
}

inline int multiprocessors(const TensorView& tensor) {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, tensor.device().device_id), "multiprocessor count");
  return count;
}

template <class T>
T* data(const TensorView& tensor) {
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
}
template <class T>
T* data(const Optional<TensorView>& tensor) {
  return tensor.has_value() ? data<T>(tensor.value()) : nullptr;
}

// The tensors' device is made current for the launch and restored after.
class DeviceGuard {
 public:
  explicit DeviceGuard(const TensorView& tensor) {
    check(cudaGetDevice(&before_), "current device");
    if (before_ != tensor.device().device_id) check(cudaSetDevice(tensor.device().device_id), "set device");
  }
  ~DeviceGuard() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

// With parts, the kernel may start while the one before it drains, and waits on the device for its end before it reads the plan.
template <class Kernel>
void launch(Kernel kernel, const Problem& problem, int ctas, bool pair, int threads, size_t shared_bytes, cudaStream_t stream) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
        "shared memory");
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute[2];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim = {pair ? 2u : 1u, 1, 1};
  attribute[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attribute;
  config.numAttrs = problem.parts != nullptr ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel, problem), "launch");
}

// The merge of partial results: it may start while the attention kernel drains, and waits for its end on the device.
template <class Kernel>
void launch_combine(Kernel kernel, const Problem& problem, int64_t ctas, int threads, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(threads);
  config.stream = stream;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, problem), "combine");
}

template <class Element, int kQuarters, int kTurns, int kAtOnce, int kCtas>
void combine_rows(const Problem& p, cudaStream_t stream) {
  launch_combine(flash_fwd_mla_combine_kernel<Element, kQuarters, kTurns, kAtOnce, kCtas>, p,
                 int64_t(p.queries) * p.rows * (4 / kQuarters), 32 * kQuarters * kTurns, stream);
}

// `most_splits`: what is known of the largest number of splits of a query.
template <class Element>
void combine(const Problem& p, int most_splits, cudaStream_t stream) {
  const int64_t rows = int64_t(p.queries) * p.rows;
  if (p.part_count < 2 * p.queries)  // most queries are whole
    launch_combine(flash_fwd_mla_combine_whole_kernel<Element>, p, p.queries * ((p.rows + kCombineRows - 1) / kCombineRows), 512, stream);
  else if (rows >= 512)
    combine_rows<Element, 4, 1, 4, 10>(p, stream);
  else if (rows > 32 || most_splits < 64)
    combine_rows<Element, 4, 4, 4, 2>(p, stream);
  else
    combine_rows<Element, 1, 16, 8, 1>(p, stream);
}

}  // namespace mla

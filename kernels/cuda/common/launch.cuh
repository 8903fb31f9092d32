// Host side: what every launcher needs.
#pragma once

#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <algorithm>

#include "problem.cuh"

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

// A map of `rows` rows of `width` bf16, for boxes of `box_rows` x 64 columns under the 128-byte swizzle; zeros outside.
inline CUtensorMap map_rows(void* base, uint64_t rows, uint64_t width, uint64_t row_bytes, uint32_t box_rows) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                              const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
          "cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode>(function);
  }();
  CUtensorMap map;
  const cuuint64_t sizes[2] = {width, rows}, strides[1] = {row_bytes};
  const cuuint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
  const CUresult code =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed with " << code;
  return map;
}

template <class Kernel>
void launch(Kernel kernel, const Problem& problem, int ctas, bool pair, int threads, size_t shared_bytes, cudaStream_t stream) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
        "shared memory");
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim = {pair ? 2u : 1u, 1, 1};
  config.attrs = attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, problem), "launch");
}

}  // namespace mla

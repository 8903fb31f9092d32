// Host side of every library: error checks, the current stream and device, and the one way to launch a kernel.
#pragma once

#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

namespace common {

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

// Makes the tensor's device current for the launch, and restores the previous one afterwards.
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

// The launch configuration of a kernel, apart from its parameters.
struct Launch {
  dim3 grid;
  int threads;
  size_t shared_bytes;
  cudaStream_t stream;
  int cluster = 1;            // CTAs in a cluster, along x
  bool programmatic = false;  // programmatic dependent launch: the kernel may start before the previous one has ended (pdl.cuh)
};

template <class... Parameters>
void launch_kernel(void (*kernel)(Parameters...), const Launch& how, const Parameters&... arguments) {
  constexpr size_t kDefaultSharedBytes = 48 * 1024;  // a kernel needs an attribute to use more
  if (how.shared_bytes > kDefaultSharedBytes)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(how.shared_bytes)),
          "shared memory");
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = {};
  config.gridDim = how.grid;
  config.blockDim = dim3(how.threads);
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = how.stream;
  config.attrs = attributes;
  if (how.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(how.cluster), 1, 1};
  }
  if (how.programmatic) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  check(cudaLaunchKernelEx(&config, kernel, arguments...), "launch");
}

}  // namespace common

// Kernels that may start while the one before them drains, and let the next one start likewise. Each has to wait for the end of the
// one before at least once, before it reads or writes what that one wrote or reads: then whatever was launched earlier has ended, too.
// Weights may be read before, if they are `settled`: the kernel right before has not written them, as in a captured step of a model.
// The router's bias is read so in every case: no kernel right before may have written it.
#pragma once

#include "launch.cuh"

namespace mla {

__device__ __forceinline__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

template <class... Arguments>
void launch_early(void (*kernel)(Arguments...), dim3 grid, int threads, int shared_bytes, cudaStream_t stream, Arguments... arguments) {
  if (shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "shared memory");
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), "launch");
}

}  // namespace mla

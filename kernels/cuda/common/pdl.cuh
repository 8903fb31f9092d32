// Programmatic dependent launch (PDL; CUDA programming guide, "Programmatic Dependent Launch and Synchronization"): a kernel may start
// while the previous kernel on the stream drains. Each kernel must call pdl_wait at least once, before it reads or writes anything that
// the previous kernel writes, and before it writes anything that the previous kernel reads. After pdl_wait all earlier kernels on the
// stream have ended.
//
// A kernel may read its weights before pdl_wait if they are `static_weights`, that is, if the previous kernel has not written them. This
// holds in a captured step of a model. The router reads its bias before pdl_wait in every case, so the previous kernel must not have
// written it.
#pragma once

#include "launch.cuh"

namespace common {

__device__ __forceinline__ void pdl_launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

template <class... Parameters>
void launch_pdl(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes, cudaStream_t stream,
                const Parameters&... arguments) {
  launch_kernel(kernel, {grid, threads, static_cast<size_t>(shared_bytes), stream, 1, true}, arguments...);
}

}  // namespace common

// Programmatic dependent launch (PDL; CUDA programming guide, "Programmatic Dependent Launch and Synchronization"): a kernel may start
// while kernels before it drain. Each kernel must call pdl_wait at least once, before it reads anything that one of them may still write,
// and before it writes anything that one of them reads or writes. After pdl_wait all earlier kernels on the stream have ended.
//
// A kernel may read this before pdl_wait: weights, if they are `static_weights`, that is, if no kernel of the step writes them, which holds
// in a captured step of a model; lengths and block tables in such a step; the router's bias in every case; and data that was complete before
// the last kernel that waited before it let the next one start: pages of the index cache, the operand of a product that runs with the previous kernel
// (../pdl.py) and, right after such a kernel, keys and plans of attention.
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

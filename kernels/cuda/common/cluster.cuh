// Exchange between the CTAs of a cluster. Values are pushed into a peer's shared memory and complete on its barrier, so that nothing
// else needs to be ordered: barrier.cluster.arrive.release compiles to a memory barrier of the whole GPU.
#pragma once

#include "ptx.cuh"

namespace common {

// All threads of the cluster call it after one thread of each CTA has initialised its barriers.
__device__ __forceinline__ void cluster_sync_barriers() {
  barrier_init_fence();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// Stores to the place that `own` has in the shared memory of CTA `rank`, and completes as many bytes on its barrier. Only in a kernel that is
// launched with clusters of several CTAs.
__device__ __forceinline__ void push(const float* own, float value, uint32_t barrier, uint32_t rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(peer_address(shared_address(own), rank)),
               "f"(value), "r"(peer_address(barrier, rank))
               : "memory");
}
__device__ __forceinline__ void push(const float4* own, const float4& v, uint32_t barrier, uint32_t rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   peer_address(shared_address(own), rank)),
               "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(peer_address(barrier, rank))
               : "memory");
}
// A word of a peer's shared memory, at the address that `own` has in this CTA's. Ordered by cluster_sync.
__device__ __forceinline__ int load_peer(const int* own, uint32_t rank) {
  int value;
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(peer_address(shared_address(own), rank)) : "memory");
  return value;
}

}  // namespace common

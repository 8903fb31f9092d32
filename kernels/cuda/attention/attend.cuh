// The frame of every attention kernel: it prepares barriers, and divides its threads into two math groups and a producer.
#pragma once

#include "one_scorer.cuh"

namespace mla {

template <class C>
__device__ __forceinline__ void initialise(SharedMemory& s, const Arrivals& arrivals) {
  if (threadIdx.x == 0) {
    for (int buffer = 0; buffer < 2; ++buffer) {
      for (int half = 0; half < 2; ++half) {
        barrier_init(shared_address(&s.full[buffer][half]), arrivals.full[half]);
        barrier_init(shared_address(&s.empty[buffer][half]), C::kPair ? 8 : 4);
      }
      barrier_init(shared_address(&s.mask_full[buffer]), arrivals.mask);
    }
    if constexpr (C::kTileBarriers) {
      for (int i = 0; i < 2 * kTiles; ++i) barrier_init(shared_address(&s.tile_full[0][0] + i), 1);
      barrier_init(shared_address(&s.last_copied), 1);
    }
    barrier_init(shared_address(&s.q_full), arrivals.q);
    barrier_init(shared_address(&s.q_empty), 8);
    barrier_init_fence();
  }
}

// The kernel waits for the plan before it lets the merging kernel start, which reads the plan, too.
__device__ __forceinline__ void wait_for_plan(const Problem& p) {
  if (p.parts != nullptr) asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
}

// No CTA leaves while its peer may still push into it or read from it.
template <class C>
__device__ __forceinline__ void leave() {
  if constexpr (C::kPair) {
    __syncwarp();
    cluster_sync();
  }
}

// `Producer` has Arrivals arrivals() and run(problem, shared memory, cluster, clusters, rank, more...) for its 128 threads.
template <class C, class Producer, class... More>
__device__ __forceinline__ void attend(const Problem& p, const More*... more) {
  extern __shared__ __align__(1024) uint8_t memory[];
  SharedMemory& s = *reinterpret_cast<SharedMemory*>(memory);
  static_assert(2 * Producer::kMathRegisters + Producer::kProducerRegisters == 3 * 168, "what 384 threads start with");
  initialise<C>(s, Producer::arrivals());
  if constexpr (C::kPair)
    cluster_sync();
  else
    __syncthreads();
  if constexpr (C::kEqual)
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  else
    wait_for_plan(p);
  constexpr int kCtas = C::kPair ? 2 : 1;
  const int rank = C::kPair ? cluster_rank() : 0, cluster = blockIdx.x / kCtas, clusters = gridDim.x / kCtas;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group == 0) {
    grow_registers<Producer::kMathRegisters>();
    math<C, 0>(p, s, cluster, clusters, rank);
  } else if (group == 1) {
    grow_registers<Producer::kMathRegisters>();
    math<C, 1>(p, s, cluster, clusters, rank);
  } else {
    shrink_registers<Producer::kProducerRegisters>();
    Producer::run(p, s, cluster, clusters, rank, more...);
  }
  leave<C>();
}

// The same with one scorer. There is always a plan; it is read while the CTAs of a pair wait for each other's barriers. The producer's
// run(problem, shared memory, first item, rank) takes the item that all threads have read.
template <class C, class Producer>
__device__ __forceinline__ void attend_with_one_scorer(const Problem& p) {
  static_assert(C::kAlwaysPlanned);
  extern __shared__ __align__(1024) uint8_t memory[];
  SharedMemory& s = *reinterpret_cast<SharedMemory*>(memory);
  static_assert(2 * Producer::kMathRegisters + Producer::kProducerRegisters == 3 * 168, "what 384 threads start with");
  initialise<C>(s, Producer::arrivals());
  wait_for_plan(p);
  constexpr int kCtas = C::kPair ? 2 : 1;
  const int rank = C::kPair ? cluster_rank() : 0;
  if constexpr (C::kPair) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  const typename C::Work item(p, blockIdx.x / kCtas, gridDim.x / kCtas);
  if constexpr (C::kPair)
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  else
    __syncthreads();
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group == 2) {
    shrink_registers<Producer::kProducerRegisters>();
    Producer::run(p, s, item, rank);
  } else {
    grow_registers<Producer::kMathRegisters>();
    math_one_scorer<C>(p, s, item, rank, group);
  }
  leave<C>();
}

}  // namespace mla

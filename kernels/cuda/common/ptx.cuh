// Thin wrappers of Hopper instructions: barriers, asynchronous copies, warpgroup MMA (WGMMA).
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>
#include <utility>

#include <cute/arch/mma_sm90_gmma.hpp>

namespace common {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- mbarriers. Waits have CTA scope, also in pairs of CTAs: what a peer sends arrives by asynchronous copies, which complete on the
// barrier. A wait with .acquire.cluster would invalidate the L1 cache (CCTL.IVALL) ----

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// One arrival for a warp, once all its lanes are here: they have read what the barrier releases.
__device__ __forceinline__ void release_local(uint64_t& barrier) {
  __syncwarp();
  if ((threadIdx.x & 31) == 0) barrier_arrive(shared_address(&barrier));
}
__device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// `remote` is a shared::cluster address, from peer_address. The arrival is not .release.cluster, which costs a GPU-wide memory barrier:
// it only announces that MMAs have finished reading.
__device__ __forceinline__ void barrier_arrive_remote(uint32_t remote) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}
// Arrives once all earlier cp.async of this thread have completed; does not raise the pending count.
__device__ __forceinline__ void barrier_arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}\n" ::"r"(barrier), "r"(parity) : "memory");
}

// ---- named barriers between the two math warpgroups ----

__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- clusters ----

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ uint32_t peer_address(uint32_t local, uint32_t rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
  return remote;
}

// ---- asynchronous copies ----

// Hides the value from the compiler, so that it does not compute sums with it early and keep them in registers.
__device__ __forceinline__ uint32_t opaque(uint32_t word) {
  asm volatile("" : "+r"(word));
  return word;
}

// L2 cache policies, as createpolicy returns them for whole accesses.
constexpr uint64_t kEvictNormal = 0x1000000000000000, kEvictFirst = 0x12F0000000000000, kEvictLast = 0x14F0000000000000;
// Copies 16 bytes, or writes 16 zeros if `bytes` is 0. Policy 0 means no policy.
template <uint64_t kPolicy>
__device__ __forceinline__ void copy16(uint32_t destination, const void* source, uint32_t bytes) {
  if constexpr (kPolicy == 0)
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(destination), "l"(source),
                 "r"(bytes), "l"(kPolicy)
                 : "memory");
}
__device__ __forceinline__ void copy4(uint32_t destination, const void* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(destination), "l"(source) : "memory");
}
// Copies `bytes` bytes, a multiple of 16; they complete on the barrier.
__device__ __forceinline__ void copy_bulk(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
               "l"(source), "r"(bytes), "r"(barrier)
               : "memory");
}
// Copies from this CTA's shared memory to a peer's; the bytes complete on the peer's barrier.
__device__ __forceinline__ void copy_bulk_peer(uint32_t remote, uint32_t source, uint32_t bytes, uint32_t remote_barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(remote), "r"(source),
               "r"(bytes), "r"(remote_barrier)
               : "memory");
}
// Copies a box of a tensor map; its bytes complete on the barrier.
__device__ __forceinline__ void copy_3d(uint32_t destination, const void* map, uint32_t barrier, int column, int row, int block) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
                   destination),
               "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(block)
               : "memory");
}
__device__ __forceinline__ void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ uint4 load_once(const void* source) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(source));
  return v;
}
__device__ __forceinline__ void store_shared16(uint32_t destination, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(destination), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ void load_matrices(uint32_t (&a)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void store_matrices(uint32_t destination, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(destination), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

// ---- arithmetic ----

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
template <class Element>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t packed;
  if constexpr (std::is_same_v<Element, __nv_bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// d += a b of 16 x 8 values over 16, by a warp.
template <class Element = __nv_bfloat16>
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<Element, __half>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- registers per role ----

template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- warpgroup MMA. A tile is 64 rows of 128 bytes under the 128-byte swizzle, 8 KB ----

__device__ __forceinline__ void mma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
template <int kCount>
__device__ __forceinline__ void hold(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

// A tile as an MMA operand. Descriptors of one tile differ in their low word only, so that a step is one 32-bit addition. `opaque`
// keeps the compiler from computing the words of all steps ahead of the loops and spilling them.
struct Tile {
  uint32_t low, high;
  // Rows are the M or N dimension, the 64 columns of a tile are K. Groups of eight rows are 1024 bytes apart.
  static __device__ __forceinline__ Tile rows(uint32_t address) {
    return {opaque((address & 0x3FFFF) >> 4 | 1u << 16), 1024u >> 4 | 1u << 30};
  }
  // Rows are K, columns are N. Tiles of 64 columns are 8192 bytes apart, groups of eight rows 1024.
  static __device__ __forceinline__ Tile columns(uint32_t address) {
    return {opaque((address & 0x3FFFF) >> 4 | (8192u >> 4) << 16), 1024u >> 4 | 1u << 30};
  }
  __device__ __forceinline__ uint64_t at(uint32_t bytes) const { return uint64_t(high) << 32 | (low + (bytes >> 4)); }
};

template <class Element>
struct Mma {
  static constexpr bool kBf16 = std::is_same_v<Element, __nv_bfloat16>;
  static constexpr auto kK = cute::SM90::GMMA::Major::K;
  static constexpr auto kMN = cute::SM90::GMMA::Major::MN;
  using Scores = std::conditional_t<kBf16, cute::SM90::GMMA::MMA_64x64x16_F32BF16BF16_SS<kK, kK>,
                                    cute::SM90::GMMA::MMA_64x64x16_F32F16F16_SS<kK, kK>>;
  using OutputRegisters = std::conditional_t<kBf16, cute::SM90::GMMA::MMA_64x256x16_F32BF16BF16_RS<kK, kMN>,
                                             cute::SM90::GMMA::MMA_64x256x16_F32F16F16_RS<kK, kMN>>;
  using OutputShared = std::conditional_t<kBf16, cute::SM90::GMMA::MMA_64x256x16_F32BF16BF16_SS<kK, kMN>,
                                          cute::SM90::GMMA::MMA_64x256x16_F32F16F16_SS<kK, kMN>>;
};

template <class Atom, size_t... I>
__device__ __forceinline__ void call_atom(float* d, uint64_t a, uint64_t b, cute::SM90::GMMA::ScaleOut scale, std::index_sequence<I...>) {
  Atom::fma(a, b, d[I]..., scale);
}
template <class Atom, size_t... I>
__device__ __forceinline__ void call_atom(float* d, const uint32_t* a, uint64_t b, cute::SM90::GMMA::ScaleOut scale, std::index_sequence<I...>) {
  Atom::fma(a[0], a[1], a[2], a[3], b, d[I]..., scale);
}
// d = a b, or d += a b, by an MMA of CUTLASS. a is a tile's descriptor, or four registers.
template <class Atom, int kCount, class A>
__device__ __forceinline__ void multiply_tiles(float (&d)[kCount], A a, uint64_t b, bool accumulate = true) {
  using cute::SM90::GMMA::ScaleOut;
  call_atom<Atom>(d, a, b, accumulate ? ScaleOut::One : ScaleOut::Zero, std::make_index_sequence<kCount>());
}

}  // namespace common

// A benchmark: the time to gather rows into shared memory without using them, which bounds every sparse kernel.
#include "../../../../kernels/cuda/attention/launch.cuh"

namespace mla {

constexpr int kStageRows = 32, kGatherThreads = 128;

// Copies blocks of 32 rows into a ring of stages. kBulk: one bulk copy per row, issued by the lanes of one warp; otherwise 16-byte copies
// by all threads.
template <int kRowBytes, bool kBulk>
__global__ void __launch_bounds__(kGatherThreads) gather_kernel(const uint8_t* rows, const int32_t* indices, int blocks, int stages) {
  constexpr int kPitch = (kRowBytes / 32 + 1) * 32, kStage = kStageRows * kPitch;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ uint64_t full[16];
  __shared__ uint32_t units[2][kStageRows];
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  if constexpr (kBulk) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) barrier_init(shared_address(&full[i]), 1);
      barrier_init_fence();
    }
    __syncthreads();
    if (warp > 0) return;
    int fills = 0;  // the n-th fill of this CTA goes to stage n % stages, and completes its phase n / stages
    const auto wait = [&](int n) { barrier_wait(shared_address(&full[n % stages]), n / stages & 1); };
    for (int block = blockIdx.x; block < blocks; block += gridDim.x, ++fills) {
      const int slot = __ldg(indices + int64_t(block) * kStageRows + lane), stage = fills % stages;
      if (fills >= stages) wait(fills - stages);
      const uint32_t barrier = shared_address(&full[stage]);
      if (lane == 0) barrier_arrive_expect(barrier, kStageRows * kRowBytes);
      __syncwarp();
      copy_bulk(shared_address(memory) + stage * kStage + lane * kPitch, rows + int64_t(slot) * kRowBytes, kRowBytes, barrier);
    }
    for (int n = max(0, fills - stages); n < fills; ++n) wait(n);  // all copies must have completed at the end
  } else {
    constexpr int kChunks = kRowBytes / 16;
    int stage = 0, even = 0;
    for (int block = blockIdx.x; block < blocks; block += gridDim.x) {
      if (warp == 0) units[even][lane] = uint32_t(__ldg(indices + int64_t(block) * kStageRows + lane)) * kChunks;
      __syncthreads();
#pragma unroll 7
      for (int i = threadIdx.x; i < kStageRows * kChunks; i += kGatherThreads) {
        const int row = i / kChunks, chunk = i - row * kChunks;
        copy16<kEvictLast>(shared_address(memory) + stage * kStage + row * kPitch + chunk * 16,
                           rows + (uint64_t(units[even][row] + chunk) << 4), 16);
      }
      asm volatile("cp.async.commit_group;");
      asm volatile("cp.async.wait_group 2;");
      if (++stage == stages) stage = 0;
      even ^= 1;
    }
    asm volatile("cp.async.wait_group 0;");
  }
}

// rows uint8 [S, bytes] with 656 or 1152 bytes, indices int32 [n * 32]; `ctas` on each multiprocessor, `stages` of 32 rows each.
void gather_rate(TensorView rows, TensorView indices, bool bulk, int64_t ctas, int64_t stages) {
  DeviceGuard guard(rows);
  const int bytes = static_cast<int>(rows.size(1)), blocks = static_cast<int>(indices.size(0) / kStageRows);
  const auto run = [&](auto kernel, int pitch) {
    const int shared = static_cast<int>(stages) * kStageRows * pitch;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "shared memory");
    kernel<<<static_cast<int>(ctas) * multiprocessors(rows), kGatherThreads, shared, stream_of(rows)>>>(
        data<uint8_t>(rows), data<int32_t>(indices), blocks, static_cast<int>(stages));
    check(cudaGetLastError(), "launch");
  };
  if (bytes == kRecord)
    bulk ? run(gather_kernel<kRecord, true>, 672) : run(gather_kernel<kRecord, false>, 672);
  else
    bulk ? run(gather_kernel<2 * kWidth, true>, 1184) : run(gather_kernel<2 * kWidth, false>, 1184);
}

}  // namespace mla

TVM_FFI_DLL_EXPORT_TYPED_FUNC(gather_rate, mla::gather_rate);

// The exact scores of a sample of the keys give each query a threshold, which somewhat more keys reach than are selected.
#pragma once

#include "../select_topk/radix.cuh"
#include "prefill.cuh"

namespace indexer {

constexpr int kSampleStride = 64;  // one key of each so many is in the sample
constexpr int kFinishThreads = 256;
constexpr int kBins = 4 * kFinishThreads, kBinBits = 10;

// The key of a stretch that is in the sample: its place changes from stretch to stretch, so that periodic keys are sampled well.
__host__ __device__ __forceinline__ int sampled_key(int stretch) {
  return stretch * kSampleStride + static_cast<int>((uint32_t(stretch) * 2654435761u >> 16) % kSampleStride);
}
// The number of samples among the keys below `key`.
__device__ __forceinline__ int samples_below(int key) { return key / kSampleStride + (sampled_key(key / kSampleStride) < key); }

struct Sample {
  const uint4* keys;  // [keys, 8]
  const float* scales;
  uint4* sampled_keys;  // [samples, 8]
  float* sampled_scales;
  const int32_t *starts, *ends;  // [rows]
  int32_t *sample_starts, *sample_ends;
  int64_t key_stride;  // in units of 16 bytes
  int samples, rows, all_keys;
};

// Copies the sample, and finds each query's range in it.
__global__ void __launch_bounds__(256) sample_kernel(const __grid_constant__ Sample p) {
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at < p.samples * 8) p.sampled_keys[at] = __ldg(p.keys + sampled_key(at / 8) * p.key_stride + at % 8);
  if (at < p.samples) p.sampled_scales[at] = __ldg(p.scales + sampled_key(at));
  if (at < p.rows) {
    p.sample_starts[at] = min(samples_below(max(p.starts[at], 0)), p.samples);
    p.sample_ends[at] = min(samples_below(max(min(p.ends[at], p.all_keys), 0)), p.samples);
  }
}

struct Thresholds {
  const float* scores;  // [rows, stride]: of the sample
  int64_t stride;
  const int32_t *starts, *ends, *sample_starts, *sample_ends;
  float* thresholds;
  int keys, k, fits;  // fits: a query of so many keys needs no threshold
};

struct HistogramMemory {
  alignas(16) uint32_t histogram[kBins];
  uint32_t warp_sums[2][32];
  topk::Found found;
};

__device__ __forceinline__ void clear_bins(HistogramMemory& s) {
  reinterpret_cast<uint4*>(s.histogram)[threadIdx.x] = make_uint4(0, 0, 0, 0);
  __syncthreads();
}

// One CTA for each query.
__global__ void __launch_bounds__(kFinishThreads) threshold_kernel(const __grid_constant__ Thresholds p) {
  __shared__ HistogramMemory s;
  const int row = blockIdx.x;
  const int length = min(p.ends[row], p.keys) - max(p.starts[row], 0);
  const int first = p.sample_starts[row], count = p.sample_ends[row] - first;
  const float* scores = p.scores + row * p.stride + first;
  float threshold = -INFINITY;
  if (length > p.fits) {
    // So many of the k best are in the sample, with the square root of that as standard deviation; 4.5 of those are added.
    const float expected = float(p.k) * float(count) / float(length);
    const uint32_t target = uint32_t(expected + 4.5f * sqrtf(expected)) + 2;
    uint32_t prefix = 0, above = 0;
    bool enough = true;
#pragma unroll
    for (int shift = 32 - kBinBits; shift > 10; shift -= kBinBits) {  // 20 bits: the threshold may be lower than the sample's value
      clear_bins(s);
      for (int i = threadIdx.x; i < count; i += kFinishThreads) {
        const float score = __ldg(scores + i);
        const uint32_t key = topk::key_of(score);
        if (score >= topk::kLowest && uint64_t(key) >> (shift + kBinBits) == prefix) atomicAdd(&s.histogram[key >> shift & (kBins - 1)], 1);
      }
      __syncthreads();
      const topk::Found found = topk::find_digit<kFinishThreads>(s, target - above);
      enough = enough && found.total >= target - above;
      prefix = prefix << kBinBits | found.digit;
      above += found.above;
    }
    if (enough) threshold = topk::value_of(prefix << (32 - 2 * kBinBits));
  }
  if (threadIdx.x == 0) p.thresholds[row] = threshold;
}

}  // namespace indexer

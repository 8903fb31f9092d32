// Tensor maps: how the kernels of this folder read queries, keys, pages and scales by TMA.
#pragma once

#include "../common/launch.cuh"
#include "scores.cuh"

namespace indexer {

inline CUtensorMap encode(CUtensorMapDataType type, int dims, const void* start, const cuuint64_t* sizes, const cuuint64_t* strides,
                          const cuuint32_t* box, CUtensorMapSwizzle swizzle) {
  using Encode = CUresult(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                          const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                          CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static Encode* const driver = [] {  // looked up at run time, so that linking needs no libcuda
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status;
    common::check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status),
                  "cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode*>(found);
  }();
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      driver(&map, type, dims, const_cast<void*>(start), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    TVM_FFI_THROW(RuntimeError) << "tensor map in " << dims << " dimensions: driver error " << static_cast<int>(result);
  return map;
}

// Tensor map of bytes [blocks, rows, 128] in boxes [box_blocks, box_rows, 128] under the 128-byte swizzle. Elements outside read as zero.
inline CUtensorMap map_of(const void* start, int64_t rows, int64_t row_stride, int64_t blocks, int64_t block_stride, int box_rows,
                          int box_blocks) {
  const cuuint64_t sizes[] = {kWidth, static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(blocks)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_stride), static_cast<cuuint64_t>(block_stride)};
  const cuuint32_t box[] = {kWidth, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(box_blocks)};
  return encode(CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, start, sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_128B);
}

// Tensor map of `count` floats in boxes of `box`. Elements outside read as zero.
inline CUtensorMap map_of_line(const void* start, int64_t count, int box) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(count)}, strides[] = {static_cast<cuuint64_t>(count) * 4};  // not read
  const cuuint32_t boxes[] = {static_cast<cuuint32_t>(box)};
  return encode(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, start, sizes, strides, boxes, CU_TENSOR_MAP_SWIZZLE_NONE);
}

}  // namespace indexer

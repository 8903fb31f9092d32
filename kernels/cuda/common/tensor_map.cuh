// Tensor maps: descriptions of arrays in device memory of which the TMA copies boxes.
#pragma once

#include <cudaTypedefs.h>

#include "launch.cuh"

namespace common {

// The map of an array of `dims` dimensions, innermost first; strides in bytes, without the innermost. Elements outside read as zero.
inline CUtensorMap encode_map(CUtensorMapDataType type, int dims, const void* start, const cuuint64_t* sizes, const cuuint64_t* strides,
                              const cuuint32_t* box, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
  static const auto driver = [] {  // looked up at run time, so that linking needs no libcuda
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result), "cuTensorMapEncodeTiled");
    if (result != cudaDriverEntryPointSuccess) TVM_FFI_THROW(RuntimeError) << "the driver has no cuTensorMapEncodeTiled";
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
  }();
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult code =
      driver(&map, type, dims, const_cast<void*>(start), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "tensor map in " << dims << " dimensions: CUDA driver error " << int(code);
  return map;
}

}  // namespace common

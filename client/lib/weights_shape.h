// A buffer's weights as the wire has them, in terms of their layout.
#ifndef PERIGEE_CLIENT_LIB_WEIGHTS_SHAPE_H_
#define PERIGEE_CLIENT_LIB_WEIGHTS_SHAPE_H_

#include "kernels/layout/weights_layout.h"
#include "proto/v1/buffers.pb.h"

namespace perigee {

inline WeightsShape WeightsShapeOf(const v1::BufferShape& shape) {
  WeightsShape weights{shape.hidden(), shape.intermediate()};
  if (shape.weight_format() == v1::BufferShape::WEIGHT_FORMAT_8BIT) {
    weights.format = WeightFormat::k8Bit;
  } else if (shape.weight_format() == v1::BufferShape::WEIGHT_FORMAT_MXFP4) {
    weights.format = WeightFormat::kMxfp4;
  }
  weights.scales = shape.weight_scales();
  return weights;
}

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_WEIGHTS_SHAPE_H_

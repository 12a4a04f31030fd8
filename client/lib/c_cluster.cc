#include "client/lib/c_cluster.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/lib/c_error.h"
#include "client/lib/perigee.h"
#include "client/lib/rank_tensors.h"
#include "kernels/layout/weights_layout.h"
#include "proto/support/resource_name.h"

namespace perigee {
namespace {

constexpr int32_t kMostTokens = 1024;  // that are issued at a time

std::string TextOrEmpty(const char* text) { return text != nullptr ? text : ""; }

absl::Status CheckSize(const char* what, uint32_t found_bytes, size_t expected_bytes) {
  if (found_bytes >= expected_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " has struct_bytes ", found_bytes,
                                                 ", expected at least ", expected_bytes));
}

// What the caller knows of a struct's fields; the others are zero.
template <typename Struct>
Struct KnownPart(const Struct& given) {
  Struct whole{};
  std::memcpy(&whole, &given, std::min<size_t>(given.struct_bytes, sizeof(whole)));
  return whole;
}

// Of one that is none: one that the coordinator refuses.
v1::BufferShape::WeightFormat WireFormat(int32_t format) {
  return static_cast<v1::BufferShape::WeightFormat>(format >= 0 && format < 3 ? format + 1 : 99);
}

v1::BufferShape ShapeOf(const perigee_buffer_shape& given) {
  v1::BufferShape shape;
  shape.set_tokens(given.tokens);
  shape.set_hidden(given.hidden);
  shape.set_topk(given.topk);
  shape.set_experts(given.experts);
  if (given.slots != -1) shape.set_slots(given.slots);
  shape.set_token_padding(given.token_padding);
  shape.set_intermediate(given.intermediate);
  shape.set_layers(given.layers);
  shape.set_gradients(given.gradients != 0);
  shape.set_weight_format(WireFormat(given.weight_format));
  shape.set_weight_scales(given.weight_scales != 0);
  shape.set_refetch(given.refetch != 0);
  shape.set_peer_store(given.peer_store != 0);
  shape.set_source_storage(given.source_storage != 0);
  shape.set_dispatch_output_slots(given.dispatch_output_slots);
  shape.set_expert_output_slots(given.expert_output_slots);
  return shape;
}

absl::StatusOr<BufferOptions> OptionsOf(const char* buffer_id, const perigee_buffer_shape& passed) {
  // Version 1's ends before what was added; a field that the caller does not know is 0.
  constexpr size_t kLeastBytes = offsetof(perigee_buffer_shape, gradients);
  const absl::Status sized = CheckSize("shape", passed.struct_bytes, kLeastBytes);
  if (!sized.ok()) return sized;
  const perigee_buffer_shape given = KnownPart(passed);
  return BufferOptions{
      .buffer_id = TextOrEmpty(buffer_id),
      .shape = ShapeOf(given),
      .operation_timeout = absl::Milliseconds(given.operation_timeout_ms),
      .warmup_timeout = absl::Milliseconds(given.warmup_timeout_ms),
      .sms = given.sms,
      .local_sms = given.local_sms,
      .programmatic_launch = given.no_programmatic_launch == 0,
      .high_priority_stream = given.high_priority_stream != 0,
  };
}

TensorView View(v1::TensorDtype dtype, const void* data, std::vector<int64_t> shape) {
  const size_t bytes = static_cast<size_t>(TensorBytes(dtype, shape));
  return {dtype, std::move(shape), {static_cast<const std::byte*>(data), bytes}};
}

// Of one part of the weights (kernels/layout/weights_layout.h), of all experts.
TensorView PartOf(const WeightsShape& shape, int part, const void* data, int64_t experts) {
  if (part >= kWeightMatrices) {
    const bool floats = shape.format == WeightFormat::k8Bit;
    return View(floats ? v1::TENSOR_DTYPE_FLOAT32 : v1::TENSOR_DTYPE_UINT8, data,
                {experts, shape.scale_rows(part), shape.scale_columns(part)});
  }
  if (shape.format == WeightFormat::kBFloat16) {
    return View(v1::TENSOR_DTYPE_BFLOAT16, data, {experts, shape.rows(part), shape.columns(part)});
  }
  const int64_t packed = shape.format == WeightFormat::kMxfp4 ? 2 : 1;
  return View(v1::TENSOR_DTYPE_UINT8, data,
              {experts, shape.rows(part), shape.columns(part) / packed});
}

absl::Status CheckFormat(const std::string& buffer, const v1::BufferShape& shape,
                         const perigee_weights& given) {
  const v1::BufferShape::WeightFormat kept =
      shape.weight_format() == v1::BufferShape::WEIGHT_FORMAT_UNSPECIFIED
          ? v1::BufferShape::WEIGHT_FORMAT_BFLOAT16
          : shape.weight_format();
  if (WireFormat(given.format) != kept) {
    return absl::InvalidArgumentError(absl::StrCat("weights of format ", given.format, "; ", buffer,
                                                   " has ",
                                                   v1::BufferShape::WeightFormat_Name(kept)));
  }
  for (const void* scales : {given.gate_scales, given.up_scales, given.down_scales}) {
    if ((scales != nullptr) == shape.weight_scales()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("weights ", scales == nullptr ? "without scales" : "with scales", "; ", buffer,
                     shape.weight_scales() ? " has scales of gate, up and down" : " has none"));
  }
  return absl::OkStatus();
}

absl::Status CheckWeights(const std::string& buffer, const v1::BufferShape& shape,
                          const perigee_weights& given) {
  if (shape.intermediate() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(buffer, " keeps no weights"));
  }
  if (given.experts != shape.experts() || given.hidden != shape.hidden() ||
      given.intermediate != shape.intermediate()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "weights of E ", given.experts, ", H ", given.hidden, ", H' ", given.intermediate, "; ",
        buffer, " has ", shape.experts(), ", ", shape.hidden(), ", ", shape.intermediate()));
  }
  if (given.gate == nullptr || given.up == nullptr || given.down == nullptr) {
    return absl::InvalidArgumentError("weights without gate, up or down: one is NULL");
  }
  return CheckFormat(buffer, shape, given);
}

absl::Status LoadWeights(Client& client, const std::string& name, int32_t layer, uint64_t version,
                         const perigee_weights& passed) {
  absl::Status status =
      CheckSize("weights", passed.struct_bytes, offsetof(perigee_weights, format));
  if (!status.ok()) return status;
  const perigee_weights given = KnownPart(passed);
  const absl::StatusOr<BufferNameParts> parts = ParseBufferName(name);
  if (!parts.ok()) return parts.status();
  const absl::StatusOr<v1::Buffer> buffer = client.GetBuffer(name);
  if (!buffer.ok()) return buffer.status();
  const absl::StatusOr<v1::Group> group = client.GetGroup(parts->group.group_name());
  if (!group.ok()) return group.status();
  if (group->state() != v1::Group::ACTIVE || buffer->state() != v1::Buffer::ACTIVE) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is ", v1::Buffer::State_Name(buffer->state()), " in a group that is ",
                     v1::Group::State_Name(group->state()), ", expected ACTIVE in ACTIVE"));
  }
  status = CheckWeights(name, buffer->shape(), given);
  if (!status.ok()) return status;
  const WeightsShape shape{given.hidden, given.intermediate,
                           static_cast<WeightFormat>(given.format),
                           buffer->shape().weight_scales()};
  const auto part = [&](int which, const void* data) {
    return data == nullptr ? TensorView() : PartOf(shape, which, data, given.experts);
  };
  const LayerWeights weights{part(0, given.gate),      part(1, given.up),
                             part(2, given.down),      part(3, given.gate_scales),
                             part(4, given.up_scales), part(5, given.down_scales)};
  return RankTensors(*group, name, std::stop_token()).LoadLayer(layer, version, weights);
}

absl::Status IssueTokens(Client& client, const char* buffer, RankId rank, int32_t count,
                         uint8_t* tokens) {
  const absl::StatusOr<v1::IssueTokensResponse> issued =
      client.IssueTokens(buffer, Generation(), rank, count, "");
  if (!issued.ok()) return issued.status();
  if (issued->tokens_size() != count) {
    return absl::InternalError(
        absl::StrCat("the coordinator issued ", issued->tokens_size(), " tokens, not ", count));
  }
  for (const std::string& token : issued->tokens()) {
    if (token.size() != PERIGEE_TOKEN_BYTES) {
      return absl::InternalError(
          absl::StrCat("the coordinator issued a token of ", token.size(), " bytes"));
    }
  }
  for (const std::string& token : issued->tokens()) {
    tokens = std::copy(token.begin(), token.end(), tokens);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace perigee

using perigee::TellNull;
using perigee::TellStatus;

uint32_t perigee_api_version(void) { return PERIGEE_API_VERSION; }

int perigee_connect(const char* address, perigee_cluster** cluster, perigee_error* error) {
  if (address == nullptr) return TellNull("address", error);
  if (cluster == nullptr) return TellNull("cluster", error);
  *cluster = nullptr;
  auto client = perigee::Client::Connect({.address = address});
  if (!client.ok()) return TellStatus(client.status(), error);
  *cluster = new perigee_cluster{*std::move(client)};
  return TellStatus(absl::OkStatus(), error);
}

void perigee_disconnect(perigee_cluster* cluster) { delete cluster; }

int perigee_create_group(perigee_cluster* cluster, const char* group_id, int32_t ranks,
                         const char* backend, char* name, perigee_error* error) {
  if (cluster == nullptr) return TellNull("cluster", error);
  if (backend == nullptr) return TellNull("backend", error);
  if (name == nullptr) return TellNull("name", error);
  const auto group = cluster->client->CreateGroup(
      {.group_id = perigee::TextOrEmpty(group_id), .ranks = ranks, .backend = backend});
  if (group.ok()) perigee::CopyText(group->name(), name, PERIGEE_NAME_BYTES);
  return TellStatus(group.status(), error);
}

int perigee_create_buffer(perigee_cluster* cluster, const char* group, const char* buffer_id,
                          const perigee_buffer_shape* shape, char* name, perigee_error* error) {
  if (cluster == nullptr) return TellNull("cluster", error);
  if (group == nullptr) return TellNull("group", error);
  if (shape == nullptr) return TellNull("shape", error);
  if (name == nullptr) return TellNull("name", error);
  const auto options = perigee::OptionsOf(buffer_id, *shape);
  if (!options.ok()) return TellStatus(options.status(), error);
  const auto buffer = cluster->client->CreateBuffer(group, *options);
  if (buffer.ok()) perigee::CopyText(buffer->name(), name, PERIGEE_NAME_BYTES);
  return TellStatus(buffer.status(), error);
}

int perigee_delete_group(perigee_cluster* cluster, const char* group, perigee_error* error) {
  if (cluster == nullptr) return TellNull("cluster", error);
  if (group == nullptr) return TellNull("group", error);
  return TellStatus(cluster->client->DeleteGroup(group), error);
}

int perigee_delete_buffer(perigee_cluster* cluster, const char* buffer, perigee_error* error) {
  if (cluster == nullptr) return TellNull("cluster", error);
  if (buffer == nullptr) return TellNull("buffer", error);
  return TellStatus(cluster->client->DeleteBuffer(buffer), error);
}

int perigee_load_weights(perigee_cluster* cluster, const char* buffer, int32_t layer,
                         uint64_t version, const perigee_weights* weights, perigee_error* error) {
  if (cluster == nullptr) return TellNull("cluster", error);
  if (buffer == nullptr) return TellNull("buffer", error);
  if (weights == nullptr) return TellNull("weights", error);
  return TellStatus(perigee::LoadWeights(*cluster->client, buffer, layer, version, *weights),
                    error);
}

int perigee_issue_tokens(perigee_cluster* cluster, const char* buffer, int32_t rank, int32_t count,
                         uint8_t* tokens, perigee_error* error) {
  if (cluster == nullptr) return TellNull("cluster", error);
  if (buffer == nullptr) return TellNull("buffer", error);
  if (tokens == nullptr) return TellNull("tokens", error);
  if (count < 1 || count > perigee::kMostTokens) {
    return TellStatus(absl::InvalidArgumentError(absl::StrCat(
                          "count is ", count, ", expected 1 to ", perigee::kMostTokens)),
                      error);
  }
  return TellStatus(
      perigee::IssueTokens(*cluster->client, buffer, perigee::RankId(rank), count, tokens), error);
}

#include "client/cli/get_views.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/cli/buffer_parts.h"
#include "client/cli/choice_view.h"
#include "client/cli/transport_view.h"

namespace perigee {
namespace {

std::string Timestamp(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ",
                          absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos()),
                          absl::UTCTimeZone());
}

// Adds a fact unless it is empty.
void Add(Facts& facts, const std::string& what, const std::string& text) {
  if (!text.empty()) facts.push_back({what, text});
}

template <typename Message>
void AddTime(Facts& facts, const std::string& what, const Message& message,
             bool (Message::*has)() const,
             const google::protobuf::Timestamp& (Message::*time)() const) {
  if ((message.*has)()) facts.push_back({what, Timestamp((message.*time)())});
}

template <typename Message>
void TimeField(JsonWriter& json, const char* key, const Message& message,
               bool (Message::*has)() const,
               const google::protobuf::Timestamp& (Message::*time)() const) {
  json.Key(key);
  if ((message.*has)()) {
    json.Value(Timestamp((message.*time)()));
  } else {
    json.Null();
  }
}

template <typename Rep, typename List>
void ArrayField(JsonWriter& json, const char* key, const List& list) {
  json.ArrayField(key, std::vector<Rep>(list.begin(), list.end()));
}

std::string ShapeOf(const v1::BufferShape& shape) {
  return absl::StrCat("S ", shape.tokens(), ", H ", shape.hidden(), ", K ", shape.topk(), ", E ",
                      shape.experts(), ", B ", shape.slots(), ", P ", shape.token_padding());
}

// As `perigee estimate` has it.
const char* FormatOf(const v1::BufferShape& shape) {
  switch (shape.weight_format()) {
    case v1::BufferShape::WEIGHT_FORMAT_8BIT:
      return "8bit";
    case v1::BufferShape::WEIGHT_FORMAT_MXFP4:
      return "mxfp4";
    default:
      return "bf16";
  }
}

std::string WeightsOf(const v1::BufferShape& shape) {
  return absl::StrCat("H' ", shape.intermediate(), ", layers ", shape.layers(), ", ",
                      FormatOf(shape), shape.weight_scales() ? " with scales" : "");
}

// "pid 42, attached 2024-05-01T12:00:00.000Z", or what keeps programs out otherwise.
std::string ClientOf(const v1::ClientAttachment& client) {
  const std::string text =
      client.has_attach_time()
          ? absl::StrCat("pid ", client.pid(), ", attached ", Timestamp(client.attach_time()))
          : "a ticket that nobody has used yet";
  return client.state() == v1::ClientAttachment::ENDING ? absl::StrCat(text, ", ending") : text;
}

// The ranks that have one: "0, 2"; "-" where none has.
template <typename Message>
std::string ClientRanks(const Message& message) {
  std::vector<int32_t> ranks;
  for (const v1::ClientAttachment& client : message.attachments()) ranks.push_back(client.rank());
  return ranks.empty() ? "-" : absl::StrJoin(ranks, ", ");
}

template <typename Message>
void AttachmentsField(JsonWriter& json, const Message& message) {
  json.Key("attachments");
  json.BeginArray();
  for (const v1::ClientAttachment& client : message.attachments()) {
    json.BeginObject();
    json.Field("buffer", client.buffer());
    json.Field("rank", int32_t{client.rank()});
    json.Field("state", v1::ClientAttachment::State_Name(client.state()));
    json.Key("pid");
    client.pid() == 0 ? json.Null() : json.Value(int32_t{client.pid()});
    TimeField(json, "attach_time", client, &v1::ClientAttachment::has_attach_time,
              &v1::ClientAttachment::attach_time);
    json.EndObject();
  }
  json.EndArray();
}

int64_t TotalBytes(const v1::Buffer& buffer) {
  uint64_t total = 0;
  for (const uint64_t bytes : buffer.rank_bytes()) total += bytes;
  return static_cast<int64_t>(total);
}

void BytesField(JsonWriter& json, absl::string_view name, const absl::optional<uint64_t>& bytes) {
  json.Key(name);
  bytes ? json.Value(*bytes) : json.Null();
}

}  // namespace

std::vector<std::string> TableHeader(const v1::Worker&) {
  return {"NAME", "STATE", "BACKEND", "HOST", "ADDRESS", "PID", "GROUP", "RANK"};
}
std::vector<std::string> TableHeader(const v1::Group&) {
  return {"NAME", "STATE", "RANKS", "BACKEND", "TRANSPORT", "GENERATION", "REASON"};
}
std::vector<std::string> TableHeader(const v1::Buffer&) {
  return {"NAME", "STATE", "GENERATION", "SHAPE", "BYTES", "CLIENTS OF RANKS"};
}
std::vector<std::string> TableHeader(const v1::GenerationInfo&) {
  return {"NAME", "STATE", "CREATED", "ENDED", "REASON"};
}

std::vector<std::string> TableRow(const v1::Worker& worker) {
  const bool assigned = !worker.group().empty();
  return {worker.name(),
          v1::Worker::State_Name(worker.state()),
          worker.backend(),
          worker.host(),
          worker.address(),
          absl::StrCat(worker.pid()),
          assigned ? worker.group() : "-",
          assigned ? absl::StrCat(worker.rank()) : "-"};
}
std::vector<std::string> TableRow(const v1::Group& group) {
  return {group.name(),
          v1::Group::State_Name(group.state()),
          absl::StrCat(group.ranks()),
          group.backend(),
          group.transport(),
          absl::StrCat(group.generation()),
          group.state_reason()};
}
std::vector<std::string> TableRow(const v1::Buffer& buffer) {
  return {buffer.name(),
          v1::Buffer::State_Name(buffer.state()),
          absl::StrCat(buffer.generation()),
          ShapeOf(buffer.shape()),
          FormatBytes(TotalBytes(buffer)),
          ClientRanks(buffer)};
}
std::vector<std::string> TableRow(const v1::GenerationInfo& generation) {
  return {generation.name(), v1::GenerationInfo::State_Name(generation.state()),
          Timestamp(generation.create_time()),
          generation.has_end_time() ? Timestamp(generation.end_time()) : "-",
          generation.end_reason()};
}

Facts FactsOf(const v1::Worker& worker) {
  Facts facts = {{"name", worker.name()},
                 {"state", v1::Worker::State_Name(worker.state())},
                 {"incarnation", worker.incarnation()},
                 {"host", worker.host()},
                 {"backend", worker.backend()},
                 {"device", worker.device()},
                 {"memory", FormatBytes(static_cast<int64_t>(worker.memory_bytes()))},
                 {"address", worker.address()},
                 {"pid", absl::StrCat(worker.pid())},
                 {"data path ABI", absl::StrCat(worker.data_path_abi())},
                 {"version", worker.version()}};
  if (!worker.group().empty()) {
    facts.push_back({"group", worker.group()});
    facts.push_back({"rank", absl::StrCat(worker.rank())});
  }
  for (const auto& fact : TransportFacts(worker)) facts.push_back(fact);
  AddTime(facts, "registered", worker, &v1::Worker::has_register_time, &v1::Worker::register_time);
  Add(facts, "lost because", worker.lost_reason());
  return facts;
}

Facts FactsOf(const v1::Group& group) {
  Facts facts = {{"name", group.name()},
                 {"state", v1::Group::State_Name(group.state())},
                 {"ranks", absl::StrCat(group.ranks())},
                 {"backend", group.backend()},
                 {"transport", group.transport()},
                 {"generation", absl::StrCat(group.generation())},
                 {"version", absl::StrCat(group.version())}};
  AddTime(facts, "created", group, &v1::Group::has_create_time, &v1::Group::create_time);
  Add(facts, "reason", group.state_reason());
  Add(facts, "lost ranks", absl::StrJoin(group.lost_ranks(), ", "));
  for (const v1::GroupMember& member : group.members()) {
    facts.push_back({absl::StrCat("rank ", member.rank()),
                     absl::StrCat(member.worker(), " at ", member.address(), ", incarnation ",
                                  member.incarnation())});
  }
  for (const v1::ClientAttachment& client : group.attachments()) {
    facts.push_back({absl::StrCat("client of rank ", client.rank()),
                     absl::StrCat(ClientOf(client), ", of ", client.buffer())});
  }
  return facts;
}

Facts FactsOf(const v1::Buffer& buffer) {
  const v1::BufferShape& shape = buffer.shape();
  Facts facts = {{"name", buffer.name()},
                 {"state", v1::Buffer::State_Name(buffer.state())},
                 {"id", absl::StrCat(buffer.id())},
                 {"generation", absl::StrCat(buffer.generation())},
                 {"shape", ShapeOf(shape)},
                 {"weights", WeightsOf(shape)},
                 {"bytes", FormatBytes(TotalBytes(buffer))}};
  if (shape.refetch()) facts.push_back({"stale slots", "are fetched again"});
  if (shape.peer_store()) facts.push_back({"local clients", "may store into every rank's rows"});
  if (shape.gradients()) {
    const absl::optional<uint64_t> bytes = GradientBytes(buffer);
    facts.push_back(
        {"gradients", bytes ? FormatBytes(static_cast<int64_t>(*bytes)) + " a rank" : "kept"});
  }
  if (const absl::optional<uint64_t> bytes = SourceBytes(buffer)) {
    facts.push_back({"source", FormatBytes(static_cast<int64_t>(*bytes)) + " a rank"});
  }
  if (const absl::optional<uint64_t> bytes = OutputSlotBytes(buffer)) {
    facts.push_back(
        {"output slots", absl::StrCat(shape.dispatch_output_slots(), " of dispatches, ",
                                      shape.expert_output_slots(), " of experts, ",
                                      FormatBytes(static_cast<int64_t>(*bytes)), " a rank")});
  }
  if (buffer.operation_timeout_ms() != 0) {
    facts.push_back({"operation timeout", absl::StrCat(buffer.operation_timeout_ms(), " ms")});
  }
  if (buffer.warmup_timeout_ms() != 0) {
    facts.push_back({"warm-up timeout", absl::StrCat(buffer.warmup_timeout_ms(), " ms")});
  }
  if (buffer.sms() != 0) facts.push_back({"SMs", absl::StrCat(buffer.sms())});
  if (buffer.local_sms() != 0) facts.push_back({"local SMs", absl::StrCat(buffer.local_sms())});
  if (buffer.no_programmatic_launch()) facts.push_back({"programmatic launch", "no"});
  if (buffer.high_priority_stream()) facts.push_back({"stream", "high priority"});
  for (const auto& fact : PathFacts(buffer)) facts.push_back(fact);
  Add(facts, "reason", buffer.state_reason());
  for (int rank = 0; rank < buffer.rank_bytes_size(); ++rank) {
    facts.push_back(
        {absl::StrCat("rank ", rank), FormatBytes(static_cast<int64_t>(buffer.rank_bytes(rank)))});
  }
  for (const v1::ClientAttachment& client : buffer.attachments()) {
    facts.push_back({absl::StrCat("client of rank ", client.rank()), ClientOf(client)});
  }
  return facts;
}

Facts FactsOf(const v1::GenerationInfo& generation) {
  using Info = v1::GenerationInfo;
  Facts facts = {{"name", generation.name()}, {"state", Info::State_Name(generation.state())}};
  AddTime(facts, "created", generation, &Info::has_create_time, &Info::create_time);
  AddTime(facts, "active", generation, &Info::has_active_time, &Info::active_time);
  AddTime(facts, "ended", generation, &Info::has_end_time, &Info::end_time);
  Add(facts, "reason", generation.end_reason());
  for (int rank = 0; rank < generation.workers_size(); ++rank) {
    facts.push_back({absl::StrCat("rank ", rank), generation.workers(rank)});
  }
  return facts;
}

void WriteJson(const v1::Worker& worker, JsonWriter& json) {
  json.BeginObject();
  json.Field("name", worker.name());
  json.Field("state", v1::Worker::State_Name(worker.state()));
  json.Field("incarnation", worker.incarnation());
  json.Field("host", worker.host());
  json.Field("backend", worker.backend());
  json.Field("device", worker.device());
  json.Field("memory_bytes", uint64_t{worker.memory_bytes()});
  json.Field("address", worker.address());
  json.Field("pid", int64_t{worker.pid()});
  json.Field("data_path_abi", uint32_t{worker.data_path_abi()});
  json.Field("version", worker.version());
  json.Key("group");
  worker.group().empty() ? json.Null() : json.Value(worker.group());
  json.Key("rank");
  worker.group().empty() ? json.Null() : json.Value(int32_t{worker.rank()});
  TimeField(json, "register_time", worker, &v1::Worker::has_register_time,
            &v1::Worker::register_time);
  json.Field("lost_reason", worker.lost_reason());
  WriteTransportCounts(worker, json);
  json.EndObject();
}

void WriteJson(const v1::Group& group, JsonWriter& json) {
  json.BeginObject();
  json.Field("name", group.name());
  json.Field("state", v1::Group::State_Name(group.state()));
  json.Field("ranks", int32_t{group.ranks()});
  json.Field("backend", group.backend());
  json.Field("transport", group.transport());
  json.Field("generation", uint64_t{group.generation()});
  json.Field("version", uint64_t{group.version()});
  TimeField(json, "create_time", group, &v1::Group::has_create_time, &v1::Group::create_time);
  json.Field("state_reason", group.state_reason());
  ArrayField<int32_t>(json, "lost_ranks", group.lost_ranks());
  json.Key("members");
  json.BeginArray();
  for (const v1::GroupMember& member : group.members()) {
    json.BeginObject();
    json.Field("rank", int32_t{member.rank()});
    json.Field("worker", member.worker());
    json.Field("incarnation", member.incarnation());
    json.Field("address", member.address());
    json.EndObject();
  }
  json.EndArray();
  AttachmentsField(json, group);
  json.EndObject();
}

void WriteJson(const v1::Buffer& buffer, JsonWriter& json) {
  const v1::BufferShape& shape = buffer.shape();
  json.BeginObject();
  json.Field("name", buffer.name());
  json.Field("state", v1::Buffer::State_Name(buffer.state()));
  json.Field("id", uint64_t{buffer.id()});
  json.Field("generation", uint64_t{buffer.generation()});
  json.Field("tokens", int32_t{shape.tokens()});
  json.Field("hidden", int32_t{shape.hidden()});
  json.Field("topk", int32_t{shape.topk()});
  json.Field("experts", int32_t{shape.experts()});
  json.Field("slots", int32_t{shape.slots()});
  json.Field("token_padding", int32_t{shape.token_padding()});
  json.Field("intermediate", int32_t{shape.intermediate()});
  json.Field("layers", int32_t{shape.layers()});
  json.Field("weight_format", FormatOf(shape));
  json.Field("weight_scales", shape.weight_scales());
  json.Field("refetch", shape.refetch());
  json.Field("gradients", shape.gradients());
  BytesField(json, "gradient_bytes_per_rank", GradientBytes(buffer));
  json.Field("peer_store", shape.peer_store());
  json.Field("source_storage", shape.source_storage());
  BytesField(json, "source_bytes_per_rank", SourceBytes(buffer));
  json.Field("dispatch_output_slots", int32_t{shape.dispatch_output_slots()});
  json.Field("expert_output_slots", int32_t{shape.expert_output_slots()});
  BytesField(json, "output_slot_bytes_per_rank", OutputSlotBytes(buffer));
  json.Field("operation_timeout_ms", int64_t{buffer.operation_timeout_ms()});
  json.Field("warmup_timeout_ms", int64_t{buffer.warmup_timeout_ms()});
  json.Field("sms", int32_t{buffer.sms()});
  json.Field("local_sms", int32_t{buffer.local_sms()});
  json.Field("programmatic_launch", !buffer.no_programmatic_launch());
  json.Field("high_priority_stream", buffer.high_priority_stream());
  WritePathChoice(buffer, json);
  ArrayField<uint64_t>(json, "rank_bytes", buffer.rank_bytes());
  json.Field("state_reason", buffer.state_reason());
  AttachmentsField(json, buffer);
  json.EndObject();
}

void WriteJson(const v1::GenerationInfo& generation, JsonWriter& json) {
  using Info = v1::GenerationInfo;
  json.BeginObject();
  json.Field("name", generation.name());
  json.Field("state", Info::State_Name(generation.state()));
  json.Field("generation", uint64_t{generation.generation()});
  TimeField(json, "create_time", generation, &Info::has_create_time, &Info::create_time);
  TimeField(json, "active_time", generation, &Info::has_active_time, &Info::active_time);
  TimeField(json, "end_time", generation, &Info::has_end_time, &Info::end_time);
  json.Field("end_reason", generation.end_reason());
  ArrayField<std::string>(json, "workers", generation.workers());
  json.EndObject();
}

}  // namespace perigee

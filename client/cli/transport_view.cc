#include "client/cli/transport_view.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace perigee {
namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

std::string Sample(const char* metric, const Labels& labels, uint64_t value) {
  std::vector<std::string> parts;
  for (const auto& [name, text] : labels) {
    const std::string escaped =
        absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
    parts.push_back(absl::StrCat(name, "=\"", escaped, "\""));
  }
  return absl::StrCat(metric, "{", absl::StrJoin(parts, ","), "} ", value, "\n");
}

std::string Head(const char* metric, const char* type, const char* help) {
  return absl::StrCat("# HELP ", metric, " ", help, "\n# TYPE ", metric, " ", type, "\n");
}

Labels LabelsOf(const v1::Worker& worker) {
  return {{"group", worker.transport().group()},
          {"rank", absl::StrCat(worker.rank())},
          {"worker", worker.name()},
          {"transport", worker.transport().transport()}};
}

Labels With(Labels labels, const char* name, std::string value) {
  labels.push_back({name, std::move(value)});
  return labels;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> TransportFacts(const v1::Worker& worker) {
  if (!worker.has_transport()) return {};
  const v1::TransportCounts& counts = worker.transport();
  std::vector<std::pair<std::string, std::string>> facts = {{"transport", counts.transport()}};
  for (int rank = 0; rank < counts.bytes_sent_size(); ++rank) {
    if (rank == worker.rank()) continue;
    facts.push_back({absl::StrCat("sent to rank ", rank),
                     FormatBytes(static_cast<int64_t>(counts.bytes_sent(rank)))});
  }
  for (const v1::FailureCount& failure : counts.failures()) {
    facts.push_back({absl::StrCat("failures, ", failure.reason()), absl::StrCat(failure.count())});
  }
  return facts;
}

void WriteTransportCounts(const v1::Worker& worker, JsonWriter& json) {
  json.Key("transport_counts");
  if (!worker.has_transport()) return json.Null();
  const v1::TransportCounts& counts = worker.transport();
  json.BeginObject();
  json.Field("group", counts.group());
  json.Field("generation", uint64_t{counts.generation()});
  json.Field("transport", counts.transport());
  json.Key("bytes_sent");
  if (counts.bytes_sent().empty()) {
    json.Null();
  } else {
    json.BeginArray();
    for (const uint64_t bytes : counts.bytes_sent()) json.Value(bytes);
    json.EndArray();
  }
  json.Key("failures");
  json.BeginArray();
  for (const v1::FailureCount& failure : counts.failures()) {
    json.BeginObject();
    json.Field("reason", failure.reason());
    json.Field("count", uint64_t{failure.count()});
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
}

std::string MetricsText(const std::vector<v1::Worker>& workers) {
  std::string info, sent, failures;
  for (const v1::Worker& worker : workers) {
    if (!worker.has_transport()) continue;
    const v1::TransportCounts& counts = worker.transport();
    const Labels labels = LabelsOf(worker);
    info += Sample("perigee_transport_info",
                   With(labels, "generation", absl::StrCat(counts.generation())), 1);
    for (int peer = 0; peer < counts.bytes_sent_size(); ++peer) {
      if (peer == worker.rank()) continue;
      sent += Sample("perigee_link_bytes_total", With(labels, "peer", absl::StrCat(peer)),
                     counts.bytes_sent(peer));
    }
    for (const v1::FailureCount& failure : counts.failures()) {
      failures += Sample("perigee_transport_failures_total",
                         With(labels, "reason", failure.reason()), failure.count());
    }
  }
  return absl::StrCat(
      Head("perigee_transport_info", "gauge",
           "How rows get from a rank to others: nvlink, nccl or local. Always 1."),
      info,
      Head("perigee_link_bytes_total", "counter",
           "Bytes that a rank has sent to another since its generation began, where counted."),
      sent,
      Head("perigee_transport_failures_total", "counter",
           "Operations that failed on a rank since its generation began, by why."),
      failures);
}

}  // namespace perigee

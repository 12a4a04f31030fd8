#include "server/publication/generation_history.h"

#include <algorithm>

#include "kernels/common/check.h"
#include "proto/support/resource_name.h"
#include "server/wire_time.h"

namespace perigee {

void GenerationHistory::Begin(const std::string& group, Generation generation,
                              const std::vector<std::string>& workers, absl::Time wall) {
  std::deque<v1::GenerationInfo>& kept = groups_[group];
  PERIGEE_CHECK(kept.empty() || kept.back().generation() < generation.value);
  v1::GenerationInfo& info = kept.emplace_back();
  info.set_name(GenerationName(group, generation));
  info.set_generation(generation.value);
  info.set_state(v1::GenerationInfo::FORMING);
  *info.mutable_create_time() = ToWire(wall);
  for (const std::string& worker : workers) info.add_workers(worker);
  if (kept.size() > kKeptPerGroup) kept.pop_front();
}

void GenerationHistory::Activate(const std::string& group, Generation generation, absl::Time wall) {
  v1::GenerationInfo* info = Mutable(group, generation);
  PERIGEE_CHECK(info != nullptr && info->state() == v1::GenerationInfo::FORMING);
  info->set_state(v1::GenerationInfo::ACTIVE);
  *info->mutable_active_time() = ToWire(wall);
}

void GenerationHistory::End(const std::string& group, Generation generation,
                            const std::string& reason, absl::Time wall) {
  v1::GenerationInfo* info = Mutable(group, generation);
  if (info == nullptr || info->state() == v1::GenerationInfo::ENDED) return;
  info->set_state(v1::GenerationInfo::ENDED);
  info->set_end_reason(reason);
  *info->mutable_end_time() = ToWire(wall);
}

void GenerationHistory::Forget(const std::string& group) { groups_.erase(group); }

const v1::GenerationInfo* GenerationHistory::Find(const std::string& group,
                                                  Generation generation) const {
  return const_cast<GenerationHistory*>(this)->Mutable(group, generation);
}

std::vector<v1::GenerationInfo> GenerationHistory::List(const std::string& group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return {};
  return {found->second.rbegin(), found->second.rend()};
}

v1::GenerationInfo* GenerationHistory::Mutable(const std::string& group, Generation generation) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return nullptr;
  const auto info =
      std::find_if(found->second.begin(), found->second.end(),
                   [&](const v1::GenerationInfo& g) { return g.generation() == generation.value; });
  return info == found->second.end() ? nullptr : &*info;
}

}  // namespace perigee

#include "server/publication/generation_history.h"

#include <algorithm>

#include "kernels/common/check.h"
#include "proto/support/resource_name.h"
#include "server/wire_time.h"

namespace perigee {

void GenerationHistory::Begin(const std::string& group, Generation generation,
                              const std::vector<std::string>& workers, absl::Time wall) {
  std::deque<Life>& kept = groups_[group];
  PERIGEE_CHECK(kept.empty() || kept.back().info.generation() < generation.value);
  v1::GenerationInfo& info = kept.emplace_back().info;
  info.set_name(GenerationName(group, generation));
  info.set_generation(generation.value);
  info.set_state(v1::GenerationInfo::FORMING);
  *info.mutable_create_time() = ToWire(wall);
  for (const std::string& worker : workers) info.add_workers(worker);
  if (kept.size() > kKeptPerGroup) kept.pop_front();
}

void GenerationHistory::Activate(const std::string& group, Generation generation, absl::Time wall) {
  Life* life = Mutable(group, generation);
  PERIGEE_CHECK(life != nullptr && life->info.state() == v1::GenerationInfo::FORMING);
  life->info.set_state(v1::GenerationInfo::ACTIVE);
  *life->info.mutable_active_time() = ToWire(wall);
}

void GenerationHistory::End(const std::string& group, Generation generation,
                            const std::string& reason, absl::Time wall) {
  Life* life = Mutable(group, generation);
  if (life == nullptr || life->info.state() == v1::GenerationInfo::ENDED) return;
  life->info.set_state(v1::GenerationInfo::ENDED);
  life->info.set_end_reason(reason);
  *life->info.mutable_end_time() = ToWire(wall);
}

void GenerationHistory::KeepLedger(const std::string& group, Generation generation,
                                   const v1::TokenLedger& ledger) {
  if (Life* life = Mutable(group, generation)) life->ledger = ledger;
}

void GenerationHistory::Forget(const std::string& group) { groups_.erase(group); }

const v1::GenerationInfo* GenerationHistory::Find(const std::string& group,
                                                  Generation generation) const {
  const Life* life = const_cast<GenerationHistory*>(this)->Mutable(group, generation);
  return life == nullptr ? nullptr : &life->info;
}

const v1::TokenLedger* GenerationHistory::FindLedger(const std::string& group,
                                                     Generation generation) const {
  const Life* life = const_cast<GenerationHistory*>(this)->Mutable(group, generation);
  return life == nullptr || !life->ledger ? nullptr : &*life->ledger;
}

std::vector<v1::GenerationInfo> GenerationHistory::List(const std::string& group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return {};
  std::vector<v1::GenerationInfo> list;
  for (auto life = found->second.rbegin(); life != found->second.rend(); ++life) {
    list.push_back(life->info);
  }
  return list;
}

GenerationHistory::Life* GenerationHistory::Mutable(const std::string& group,
                                                    Generation generation) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return nullptr;
  const auto life = std::find_if(found->second.begin(), found->second.end(), [&](const Life& one) {
    return one.info.generation() == generation.value;
  });
  return life == found->second.end() ? nullptr : &*life;
}

}  // namespace perigee

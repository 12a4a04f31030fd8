#include "client/cli/doctor/network_checks.h"

#include "absl/strings/str_cat.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::string ListeningRemedy(const NetworkFacts& facts) {
  const std::string port = facts.address.substr(facts.address.rfind(':') + 1);
  switch (facts.listening.code()) {
    case absl::StatusCode::kAlreadyExists:
      return absl::StrCat("end who listens there (ss -ltnp 'sport = :", port,
                          "'), or take another port: --address 127.0.0.1:0");
    case absl::StatusCode::kPermissionDenied:
      return "take a port of 1024 or above";
    case absl::StatusCode::kInvalidArgument:
      return "give an address of this machine and a port: --address 127.0.0.1:5000";
    default:
      return "give an address that this machine has (ip -brief address): --address 127.0.0.1:0";
  }
}

}  // namespace

std::vector<Finding> CheckNetwork(const NetworkFacts& facts) {
  std::vector<Finding> findings = {
      Judge(facts.loopback.ok(), FindingState::kFail,
            {.name = "loopback",
             .found = facts.loopback.ok() ? "a free port of 127.0.0.1 was bound and reached"
                                          : absl::StrCat("127.0.0.1: ", Message(facts.loopback)),
             .expected = "connections to free ports of 127.0.0.1",
             .remedy = "ip link set lo up; let firewalls pass the interface lo"}),
      Judge(facts.listening.ok(), FindingState::kFail,
            {.name = "coordinator_address",
             .found = absl::StrCat(facts.address, facts.listening.ok()
                                                      ? " can be listened at"
                                                      : ": " + Message(facts.listening)),
             .expected = "an address of this machine, its port free (0: any)",
             .remedy = ListeningRemedy(facts)})};
  if (facts.named.empty()) return findings;
  findings.push_back(
      Judge(facts.reached.ok(), FindingState::kWarn,
            {.name = "perigee_address",
             .found = absl::StrCat(kAddressVariable, "=", facts.named,
                                   facts.reached.ok() ? " answers" : ": " + Message(facts.reached)),
             .expected = "a coordinator that listens there",
             .remedy = absl::StrCat("unset ", kAddressVariable,
                                    ", or start its coordinator: perigee up "
                                    "--ranks N --address ",
                                    facts.named)}));
  return findings;
}

}  // namespace perigee

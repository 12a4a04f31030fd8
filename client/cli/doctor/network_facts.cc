#include "client/cli/doctor/network_facts.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/coordinator_address.h"
#include "proto/local/file_descriptor.h"
#include "proto/local/wait_limit.h"

namespace perigee {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(1);

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::Status Failed(absl::string_view what, int error) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(error));
  switch (error) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    default:
      return absl::FailedPreconditionError(text);
  }
}

struct HostPort {
  std::string host;
  std::string port;
};

// With the brackets of an IPv6 host taken off.
absl::StatusOr<HostPort> ParseHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", address.substr(0, 80), "', expected HOST:PORT"));
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return HostPort{host, absl::StrCat(port)};
}

absl::StatusOr<Addresses> Resolve(const std::string& address) {
  const auto parsed = ParseHostPort(address);
  if (!parsed.ok()) return parsed.status();
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parsed->host.c_str(), parsed->port.c_str(), &hints, &found);
  if (error == 0) return Addresses(found, freeaddrinfo);
  return absl::InvalidArgumentError(
      absl::StrCat("host '", parsed->host, "' has no address: ", gai_strerror(error)));
}

absl::StatusOr<FileDescriptor> Listen(const std::string& address) {
  const auto addresses = Resolve(address);
  if (!addresses.ok()) return addresses.status();
  const addrinfo& to = **addresses;
  FileDescriptor fd(socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Failed("socket", errno);
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd.get(), to.ai_addr, to.ai_addrlen) != 0) return Failed("bind", errno);
  if (listen(fd.get(), 1) != 0) return Failed("listen", errno);
  return fd;
}

absl::Status Connect(const sockaddr* address, socklen_t size) {
  const FileDescriptor fd(
      socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Failed("socket", errno);
  if (connect(fd.get(), address, size) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return Failed("connect", errno);
  const absl::Status ready = WaitLimit(kTimeout).Wait(fd.get(), POLLOUT);
  if (!ready.ok()) return absl::FailedPreconditionError("no answer within 1 s");
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? absl::OkStatus() : Failed("connect", error);
}

absl::Status TryLoopback() {
  const auto listener = Listen("127.0.0.1:0");
  if (!listener.ok()) return listener.status();
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  auto* address = reinterpret_cast<sockaddr*>(&bound);
  if (getsockname(listener->get(), address, &size) != 0) return Failed("getsockname", errno);
  return Connect(address, size);
}

absl::Status TryToReach(const std::string& address) {
  const auto addresses = Resolve(address);
  if (!addresses.ok()) return addresses.status();
  return Connect((*addresses)->ai_addr, (*addresses)->ai_addrlen);
}

}  // namespace

absl::Status CheckHostPort(const std::string& address) { return ParseHostPort(address).status(); }

NetworkFacts GatherNetworkFacts(const std::string& address) {
  NetworkFacts facts;
  facts.loopback = TryLoopback();
  facts.address = address;
  facts.listening = Listen(address).status();
  facts.named = CoordinatorAddress("");
  if (!facts.named.empty()) facts.reached = TryToReach(facts.named);
  return facts;
}

}  // namespace perigee

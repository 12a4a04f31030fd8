#include "client/cli/doctor/place_facts.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "client/cli/cluster/run_directory.h"
#include "proto/local/unix_socket.h"

namespace perigee {
namespace {

constexpr absl::Duration kSocketTimeout = absl::Seconds(1);
// NAME-INCARNATION.sock, the longest name that `up` gives.
constexpr char kLongestSocket[] = "/w127-0123456789abcdef.sock";

absl::Status TrySocket(const std::string& path) {
  auto listener = UnixListener::Listen(path);
  if (!listener.ok()) return listener.status();
  const auto client = UnixSocket::Connect(path, WaitLimit(kSocketTimeout));
  if (!client.ok()) return client.status();
  return listener->Accept().status();
}

}  // namespace

PlaceFacts GatherPlaceFacts() {
  PlaceFacts facts;
  facts.programs = FindPrograms();
  const char* wanted = std::getenv("TMPDIR");
  if (wanted != nullptr) facts.wanted = wanted;
  facts.parent = RunDirectoryParent();
  struct stat status;
  if (stat(facts.parent.c_str(), &status) == 0) {
    facts.unprotected = (status.st_mode & 022) != 0 && (status.st_mode & S_ISVTX) == 0;
  }
  struct statvfs space;
  if (statvfs(facts.parent.c_str(), &space) == 0) {
    facts.free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  }
  const auto directory = RunDirectory::Create("");
  facts.made = directory.status();
  if (!directory.ok()) return facts;
  const std::string path = directory->socket_dir() + kLongestSocket;
  facts.socket_path_bytes = path.size();
  facts.socket = TrySocket(path);
  RunDirectory::Remove(directory->temporary());
  return facts;
}

}  // namespace perigee

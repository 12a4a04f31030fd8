// A local client in a process of its own, to be killed by a test: attaches with the ticket in the
// file named first, says so, and stays; with --barrier it enters one that no other rank enters.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>

#include "client/lib/local_client.h"

namespace perigee {
namespace {

int Run(const char* path, bool barrier) {
  v1::AttachTicket ticket;
  std::ifstream file(path, std::ios::binary);
  if (!ticket.ParseFromIstream(&file)) return 2;
  const auto client = LocalClient::Attach(ticket);
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }
  if (barrier && !(*client)->Submit(LocalBarrier{}).ok()) return 1;
  std::printf("attached\n");
  std::fflush(stdout);
  while (true) pause();
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  return perigee::Run(argv[1], argc > 2 && std::strcmp(argv[2], "--barrier") == 0);
}

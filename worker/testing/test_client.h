// A client that speaks the attach socket's language itself, so that it can also speak it wrongly.
#ifndef PERIGEE_WORKER_TESTING_TEST_CLIENT_H_
#define PERIGEE_WORKER_TESTING_TEST_CLIENT_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/local/attach_message.h"
#include "proto/local/command_producer.h"
#include "proto/local/shared_mapping.h"
#include "proto/local/unix_socket.h"

namespace perigee {

// A client's side of an attachment.
struct TestClient {
  static constexpr absl::Duration kLong = absl::Seconds(20);

  static absl::StatusOr<SocketMessage> Ask(UnixSocket& socket, const AttachRequest& request) {
    absl::Status status = socket.Send(ToBytes(request), {}, WaitLimit(kLong));
    if (!status.ok()) return status;
    return socket.Receive(sizeof(AttachReply), kAttachParts, WaitLimit(kLong));
  }
  // PERMISSION_DENIED: refused.
  static absl::StatusOr<TestClient> Attach(const std::string& path, const AttachRequest& request) {
    absl::StatusOr<UnixSocket> socket = UnixSocket::Connect(path, WaitLimit(kLong));
    if (!socket.ok()) return socket.status();
    absl::StatusOr<SocketMessage> message = Ask(*socket, request);
    if (!message.ok()) return message.status();
    const absl::StatusOr<AttachReply> reply = ParseAttachReply(message->bytes);
    if (!reply.ok()) return reply.status();
    if (reply->code != 0) return absl::PermissionDeniedError("refused");
    TestClient client{*std::move(socket), {}, {}, {}, nullptr};
    SharedMapping* const parts[] = {&client.page, &client.arena, &client.shard};
    for (size_t i = 0; i < std::size(parts); ++i) {
      *parts[i] = *SharedMapping::Map(std::move(message->descriptors[i]), reply->size_bytes[i]);
    }
    client.commands = std::make_unique<CommandProducer>(**OpenCommandPage(client.page.memory()),
                                                        RealClock(), CommandProducerOptions());
    return client;
  }

  absl::Status Detach() { return socket.Send(ToBytes(DetachMessage()), {}, WaitLimit(kLong)); }
  absl::StatusOr<LocalCompletion> Run(const LocalOperation& operation) {
    const absl::StatusOr<uint64_t> position = commands->Submit(operation);
    if (!position.ok()) return position.status();
    return commands->Wait(*position, kLong);
  }

  UnixSocket socket;
  SharedMapping page, arena, shard;
  std::unique_ptr<CommandProducer> commands;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_TEST_CLIENT_H_

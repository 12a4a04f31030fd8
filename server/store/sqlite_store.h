// The Store in a directory: one SQLite file, write-ahead log, flushed to disk at every commit. One
// process has it at a time.
//
//   counters(name, value)            last number given out: term, generation, buffer, serial
//   token_salts(generation, salt)
//   token_issues(request_id, ...)    TokenIssue and when it was made
#ifndef PERIGEE_SERVER_STORE_SQLITE_STORE_H_
#define PERIGEE_SERVER_STORE_SQLITE_STORE_H_

#include <memory>
#include <mutex>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/store.h"

struct sqlite3;

namespace perigee {

class SqliteStore final : public Store {
 public:
  // Makes the directory (mode 0700; its parent must exist) and the file where they are missing, and
  // increments the term. NOT_FOUND, PERMISSION_DENIED or FAILED_PRECONDITION: the directory cannot
  // be used; UNAVAILABLE: another process has it; DATA_LOSS: the file is damaged or no database of
  // this program; FAILED_PRECONDITION: a newer program wrote it. Every message names the path.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& directory);
  ~SqliteStore() override;
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;

  uint64_t term() const override { return term_; }
  absl::StatusOr<uint64_t> TakeBufferId() override;
  absl::StatusOr<OpenedGeneration> OpenGeneration(const std::string& salt, int32_t ranks,
                                                  uint64_t count) override;
  absl::StatusOr<SerialRange> TakeSerials(uint64_t count) override;
  absl::Status RecordIssue(const TokenIssue& issue, absl::Time wall,
                           absl::Time forget_before) override;
  absl::StatusOr<absl::optional<StoredIssue>> FindIssue(const std::string& request_id) override;

 private:
  SqliteStore(sqlite3* database, std::string path) : database_(database), path_(std::move(path)) {}

  static const char* TokenSchema();

  absl::Status Prepare();  // pragmas, schema, integrity, term
  // Commits what `work` did where that succeeds, else undoes it.
  absl::Status InTransaction(absl::FunctionRef<absl::Status()> work);
  absl::StatusOr<SerialRange> TakeRange(uint64_t count);
  absl::Status Execute(const char* sql);
  absl::StatusOr<int64_t> QueryNumber(const char* sql);
  absl::StatusOr<uint64_t> Increment(const char* counter);
  absl::Status Failure(const char* doing) const;

  std::mutex mutex_;
  sqlite3* const database_;  // owned
  const std::string path_;
  uint64_t term_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_STORE_SQLITE_STORE_H_

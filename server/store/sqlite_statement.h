// One prepared statement of SQLite, with its parameters and columns.
#ifndef PERIGEE_SERVER_STORE_SQLITE_STATEMENT_H_
#define PERIGEE_SERVER_STORE_SQLITE_STATEMENT_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

namespace perigee {

// Not thread-safe. Errors are the database's: sqlite3_errcode has them.
class SqliteStatement {
 public:
  // Parameters are ?1, ?2, ...
  SqliteStatement(sqlite3* database, const char* sql) {
    sqlite3_stmt* raw = nullptr;
    ok_ = sqlite3_prepare_v2(database, sql, -1, &raw, nullptr) == SQLITE_OK;
    statement_.reset(raw);
  }

  SqliteStatement& Bind(int index, uint64_t value) {
    ok_ = ok_ &&
          sqlite3_bind_int64(statement_.get(), index, static_cast<int64_t>(value)) == SQLITE_OK;
    return *this;
  }
  SqliteStatement& Bind(int index, const std::string& bytes) {
    ok_ = ok_ && sqlite3_bind_blob(statement_.get(), index, bytes.data(),
                                   static_cast<int>(bytes.size()), SQLITE_TRANSIENT) == SQLITE_OK;
    return *this;
  }

  // False: preparing or binding has failed.
  bool ok() const { return ok_; }
  // SQLITE_ROW, SQLITE_DONE, or an error.
  int Step() { return ok_ ? sqlite3_step(statement_.get()) : SQLITE_ERROR; }
  // To the end: a statement that has returned its row has not committed yet.
  bool Run() {
    int result = Step();
    while (result == SQLITE_ROW) result = Step();
    return result == SQLITE_DONE;
  }

  uint64_t Number(int column) const {
    return static_cast<uint64_t>(sqlite3_column_int64(statement_.get(), column));
  }
  std::string Bytes(int column) const {
    const auto* const data =
        static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
    const int size = sqlite3_column_bytes(statement_.get(), column);
    return data == nullptr ? std::string() : std::string(data, static_cast<size_t>(size));
  }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  bool ok_ = false;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_STORE_SQLITE_STATEMENT_H_

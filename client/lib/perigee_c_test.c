// The C interface as a C program has it: its header is plain C, and the shared object holds what it
// declares.
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "client/lib/perigee.h"

// A caller that was built with version 1 keeps working: nothing moves, structs only grow.
_Static_assert(offsetof(perigee_error, message) == 104 && sizeof(perigee_error) >= 1128, "");
_Static_assert(sizeof(perigee_buffer_shape) >= 40, "");
_Static_assert(offsetof(perigee_buffer_shape, gradients) == 36, "");
_Static_assert(offsetof(perigee_gradients, home_gate) == 8, "");
_Static_assert(offsetof(perigee_gradients, slot_down) == 48, "");
_Static_assert(offsetof(perigee_buffer_shape, weight_format) == 40, "");
_Static_assert(offsetof(perigee_buffer_shape, peer_store) == 52, "");
_Static_assert(offsetof(perigee_buffer_shape, expert_output_slots) == 64, "");
_Static_assert(offsetof(perigee_buffer_shape, operation_timeout_ms) == 68, "");
_Static_assert(offsetof(perigee_buffer_shape, high_priority_stream) == 88, "");
_Static_assert(sizeof(perigee_slot) == 16 && offsetof(perigee_output_slot, rows) == 8, "");
_Static_assert(offsetof(perigee_weights, gate) == 16 && sizeof(perigee_weights) >= 40, "");
_Static_assert(offsetof(perigee_weights, format) == 40, "");
_Static_assert(offsetof(perigee_slots, gate) == 16 && sizeof(perigee_slots) >= 64, "");
_Static_assert(offsetof(perigee_weights, down_scales) == 64, "");
_Static_assert(offsetof(perigee_buffer_shape, source_storage) == 56, "");
_Static_assert(offsetof(perigee_source, tokens) == 48 && sizeof(perigee_source) >= 64, "");
_Static_assert(offsetof(perigee_memory, input_tokens) == 64, "");
_Static_assert(offsetof(perigee_memory, plan_home_load) == 160, "");
_Static_assert(offsetof(perigee_memory, kind) == 168 && sizeof(perigee_memory) >= 224, "");

static int failures = 0;

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "FAILED: %s\n", what);
  ++failures;
}

static perigee_error new_error(void) {
  perigee_error error;
  memset(&error, 0x5a, sizeof(error));
  error.struct_bytes = sizeof(error);
  return error;
}

static void refuses_null(void) {
  perigee_error error = new_error();
  perigee_cluster* cluster = NULL;
  expect(perigee_connect(NULL, &cluster, &error) == PERIGEE_INVALID_ARGUMENT, "address NULL");
  expect(strcmp(error.message, "address is NULL") == 0, error.message);
  expect(perigee_connect("127.0.0.1:1", NULL, NULL) == PERIGEE_INVALID_ARGUMENT, "no error");
  expect(perigee_delete_group(NULL, "g", &error) == PERIGEE_INVALID_ARGUMENT, "cluster NULL");
  expect(strcmp(error.message, "cluster is NULL") == 0, error.message);
  uint8_t tokens[PERIGEE_TOKEN_BYTES];
  expect(perigee_issue_tokens(NULL, "b", 0, 1, tokens, &error) == PERIGEE_INVALID_ARGUMENT,
         "no tokens");
  expect(strcmp(error.message, "cluster is NULL") == 0, error.message);
  perigee_disconnect(NULL);
}

static void refuses_attachments_that_are_none(void) {
  perigee_error error = new_error();
  perigee_memory memory;
  perigee_gradients gradients;
  perigee_slots slots;
  uint16_t* rows = NULL;
  perigee_source source;
  perigee_slot slot = {1, 0, 0};
  uint64_t command = 0;
  int32_t done = 0;
  void* address = &command;
  const int codes[] = {
      perigee_get_memory(NULL, &memory, &error),
      perigee_get_gradients(NULL, 0, &gradients, &error),
      perigee_get_slots(NULL, &slots, &error),
      perigee_peer_rows(NULL, 0, &rows, &error),
      perigee_get_source(NULL, "load", &source, &error),
      perigee_prepare_source(NULL, 1, 0, 1, 1, &command, &error),
      perigee_materialise(NULL, 1, &command, &error),
      perigee_leave(NULL, &error),
      perigee_empty(NULL, &command, &error),
      perigee_dispatch(NULL, 1, 0, 0, &command, &error),
      perigee_dispatch_with_plan(NULL, 1, 0, 0, &command, &error),
      perigee_prefetch_weights(NULL, 1, 0, 1, &command, &error),
      perigee_run_experts(NULL, 1, 0, 1, 0, &command, &error),
      perigee_combine(NULL, 1, 0, &command, &error),
      perigee_reduce_gradients(NULL, 1, 0, &command, &error),
      perigee_barrier(NULL, &command, &error),
      perigee_prepare_dispatch(NULL, 1, 0, &command, &error),
      perigee_prepare_publication(NULL, 1, 0, NULL, &command, &error),
      perigee_store_rows(NULL, 1, &command, &error),
      perigee_publish(NULL, 1, &command, &error),
      perigee_release_plan(NULL, 1, &command, &error),
      perigee_clone_plan(NULL, 2, 1, &command, &error),
      perigee_follow_stream(NULL, NULL, &error),
      perigee_hold_stream(NULL, NULL, 0, &error),
      perigee_mark_stream(NULL, NULL, &error),
      perigee_hold_for_mark(NULL, NULL, &error),
      perigee_copy(NULL, NULL, &memory, &memory, 0, &error),
      perigee_stream_done(NULL, NULL, &done, &error),
      perigee_allocate(NULL, 1, &address, &error),
      perigee_get_output_slot(NULL, 0, NULL, &error),
      perigee_dispatch_into_slot(NULL, 1, 0, 0, PERIGEE_ANY_SLOT, &slot, &command, &error),
      perigee_dispatch_with_plan_into_slot(NULL, 1, 0, 0, 0, &slot, &command, &error),
      perigee_run_experts_of_slot(NULL, 1, 0, 1, 0, &slot, 0, &command, &error),
      perigee_combine_slot(NULL, 1, &slot, &command, &error),
      perigee_combine_own_rows(NULL, 1, 0, &command, &error),
      perigee_release_slot(NULL, PERIGEE_DISPATCH_OUTPUT, &slot, &command, &error),
      perigee_release_slot_behind(NULL, NULL, &slot, &command, &error),
      perigee_capture_slot_read(NULL, NULL, 0, &error),
      perigee_release_slot_replayed(NULL, &slot, &command, &error),
      perigee_taken_slot(NULL, 0, &slot, &error),
      perigee_begin_program(NULL, &error),
      perigee_submit_program(NULL, &error),
      perigee_drop_program(NULL, &error),
      perigee_wait(NULL, 0, 0, NULL, &error),
  };
  for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); ++i) {
    expect(codes[i] == PERIGEE_INVALID_ARGUMENT, "attachment NULL");
  }
  expect(strcmp(error.message, "attachment is NULL") == 0, error.message);
  expect(address == NULL, "no memory");
  perigee_free(NULL);
  perigee_detach(NULL);
}

static void says_who_does_not_answer(void) {
  perigee_error error = new_error();
  perigee_cluster* cluster = NULL;
  // Nobody serves at port 1.
  const int code = perigee_connect("127.0.0.1:1", &cluster, &error);
  expect(code == PERIGEE_UNAVAILABLE || code == PERIGEE_DEADLINE_EXCEEDED, "nobody answers");
  expect(error.code == code, "the code is told");
  expect(cluster == NULL, "no cluster");
  expect(strstr(error.message, "127.0.0.1:1") != NULL, error.message);
}

int main(void) {
  expect(perigee_api_version() == PERIGEE_API_VERSION, "version");
  refuses_null();
  refuses_attachments_that_are_none();
  says_who_does_not_answer();
  return failures == 0 ? 0 : 1;
}

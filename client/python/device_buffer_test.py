#!/usr/bin/python3
"""In which order perigee.DeviceBuffer has things done, without a GPU: the library is a fake one, whose
device memory is this process's and whose streams do at once what they are given."""

import types
import unittest
from unittest import mock

import numpy

import perigee
from fake_device import NVS, Array, B, DeviceTest, E, FakeTorch, H, K, S
from perigee import _device as device_module
from perigee import device_buffer
from perigee._library import PerigeeError


class DeviceBufferTest(DeviceTest):

    def test_a_call_is_a_link_of_its_stream(self):
        rows, weights, cu_seqlens, plan = self.buffer.dispatch(*self.inputs(), stream=9)
        self.assertEqual(self.take_log(), [
            "caller's to input_tokens on 9", "caller's to input_route_weights on 9",
            "caller's to input_routes on 9", "follow 9", "dispatch", "9 waits for 0",
            "shard_rows to caller's on 9", "shard_route_weights to caller's on 9",
            "plan_dst to caller's on 9", "mark on 9"])
        self.assertEqual(self.attachment.arrays["input_tokens"][:, 0].tolist(), [3, 3, 3, 0])
        self.assertEqual((rows.shape, rows.dtype, set(self.values(rows))), ((NVS, H), "bfloat16", {7}))
        self.assertEqual(set(self.values(weights)), {8.0})
        self.assertEqual(self.values(cu_seqlens), list(range(S * K, S * K + E + B)))
        self.assertEqual(self.values(plan.home_load),
                         self.attachment.arrays["plan_home_load"].tolist())
        self.assertEqual(self.take_log(), ["0 waits for 0", "0 waits for the mark"])
        tokens, gathered, event = self.buffer.combine(plan, rows, weights, stream=9)
        self.assertIsNone(event)
        self.assertEqual(self.take_log(), [
            "caller's to shard_rows on 9", "caller's to shard_route_weights on 9", "follow 9",
            "combine_own_rows", "9 waits for 1", "output_tokens to caller's on 9",
            "output_route_weights to caller's on 9", "mark on 9"])
        self.assertEqual((set(self.values(tokens)), set(self.values(gathered))), ({5}, {6.0}))

    def dispatch_into_slot(self, **options):
        options = {"reuse_output": True, "async_finish": True, "stream": 1, **options}
        *_, plan, slot, event = self.buffer.dispatch(*self.inputs(), **options)
        self.plans.append(plan)  # one that is dropped is a command more
        return slot, event

    def test_a_stream_releases_a_slot_and_no_other_waits_for_it(self):
        slot, event = self.dispatch_into_slot()
        self.assertEqual((slot.index, slot.identity), (0, 100))
        self.assertEqual(event.over, True, "which slot comes first is not known before")
        self.assertEqual(self.take_log()[3:], ["follow 1", "dispatch_into_slot"])
        self.assertEqual(set(self.values(slot.rows)), {0})
        slot.release(stream=2)
        self.assertEqual(self.take_log(), ["2 waits for 0", "plan_dst to caller's on 2", "mark on 2",
                                           "release_slot_behind 2: slot 0"])
        # From here on nothing is waited for by a thread.
        ended = self.attachment.ended
        second, event = self.dispatch_into_slot()
        self.assertEqual((second.index, second.identity), (1, 102))
        self.assertEqual(set(self.values(second.rows)), {1})
        third, _ = self.dispatch_into_slot()
        self.assertEqual((third.index, third.identity), (0, 103))
        self.assertEqual(self.attachment.ended, ended)
        with self.assertRaisesRegex(ValueError, "slot 0 of identity 100 is released already"):
            slot.release(stream=2)
        with self.buffer.program(), self.assertRaisesRegex(ValueError, "behind program"):
            second.release(stream=1)

    def test_a_graph_releases_a_slot_whoever_has_it(self):
        slot, _ = self.dispatch_into_slot()
        self.take_log()
        slot.capture_read(stream=2)
        self.assertEqual(self.take_log(), ["read of 0 captured on 2"])
        self.assertFalse(slot.released)
        slot.release(replayed=True, stream=2)
        self.assertEqual(self.take_log()[-1], "release_slot_replayed", "and no stream waits for it")
        with self.assertRaisesRegex(ValueError, "is released already"):
            slot.capture_read(stream=2)

    def test_behind_a_dispatch_that_has_failed_the_turn_is_asked_for(self):
        self.dispatch_into_slot()
        lost, event = self.dispatch_into_slot()
        self.attachment.failures[1] = PerigeeError("FAILED_PRECONDITION", "", "DECLINED")
        self.attachment.turn = lost.index  # it has taken none
        self.attachment.ended = 2
        with self.assertRaises(PerigeeError):
            event.synchronize()
        again, event = self.dispatch_into_slot()
        self.assertEqual((again.index, event.over), (lost.index, True))

    def test_an_event_puts_what_follows_behind_it_and_once(self):
        *_, plan, event = self.buffer.dispatch(*self.inputs(), zero_copy=True,
                                               router_weights_zero_copy=True, async_finish=True,
                                               stream=1)
        done = self.buffer.combine(plan, self.buffer.hidden_nvsh_buffer_view, zero_copy=True,
                                   async_finish=True, stream=1)[-1]
        self.assertEqual(self.take_log()[3:], ["follow 1", "dispatch", "follow 1", "combine"])
        done.wait(stream=2)
        done.wait(stream=2)
        # The arrays of the dispatch before it, too: its plan.
        self.assertEqual(self.take_log(), [
            "2 waits for 0", "plan_dst to caller's on 2", "mark on 2",
            "2 waits for 1", "output_tokens to caller's on 2", "mark on 2"])
        event.wait(stream=2)
        self.assertEqual(self.take_log(), [])

    def test_an_event_puts_what_follows_behind_it_on_every_stream_that_it_is_given(self):
        _, _, _, plan, event = self.buffer.dispatch(*self.inputs(), async_finish=True, stream=1)
        event.wait(stream=2)
        self.assertEqual(self.take_log()[-2:], ["plan_dst to caller's on 2", "mark on 2"])
        event.wait(stream=3)
        self.assertEqual(self.take_log(), ["3 waits for 0", "3 waits for the mark"])
        last = self.buffer.barrier(async_finish=True, stream=1)
        last.wait(stream=3)
        self.assertEqual(self.take_log(), ["follow 1", "barrier", "3 waits for 1"])
        last.wait(stream=4)
        self.assertEqual(self.take_log(), ["4 waits for 0", "4 waits for the mark", "4 waits for 1"])
        plan.release()

    def test_no_stream_waits_for_what_has_not_been_handed_over(self):
        view = self.buffer.hidden_nvsh_buffer_view
        options = {"zero_copy": True, "async_finish": True, "stream": 1}
        with self.buffer.program():
            *_, plan, event = self.buffer.dispatch(*self.inputs(), router_weights_zero_copy=True,
                                                   **options)
            last = self.buffer.combine(plan, view, **options)[-1]
            self.assertFalse(event.done() or last.done())
            with self.assertRaisesRegex(ValueError, "before the program is handed over"):
                last.wait(stream=2)
        self.assertEqual(self.take_log(), [
            "begin_program", "caller's to input_tokens on 1", "caller's to input_route_weights on 1",
            "caller's to input_routes on 1", "follow 1", "dispatch", "follow 1", "combine",
            "submit_program"])
        last.wait(stream=2)
        self.assertEqual(self.take_log()[0], "2 waits for 0")
        with self.assertRaisesRegex(ValueError, "async_finish=True"):
            with self.buffer.program():
                event = self.buffer.barrier(async_finish=True)
                self.buffer.barrier()
        self.assertEqual(self.take_log()[-1], "drop_program")
        for look in (event.synchronize, lambda: event.wait(stream=3)):
            with self.assertRaisesRegex(PerigeeError, "was not handed over"):
                look()
        with self.assertRaisesRegex(KeyError, "caller's own"):
            with self.buffer.program():
                *_, plan, _ = self.buffer.dispatch(*self.inputs(), **options)
                raise KeyError("caller's own")
        self.assertEqual(self.take_log()[-1], "drop_program")
        with self.assertRaisesRegex(PerigeeError, "was not handed over"):
            plan.load
        self.assertEqual(self.take_log(), [])

    def test_an_event_that_is_over_is_waited_for_alone(self):
        _, _, _, plan, event = self.buffer.dispatch(*self.inputs(), async_finish=True, stream=1)
        self.attachment.ended = 1
        last = self.buffer.barrier(async_finish=True, stream=2)
        self.assertEqual(self.take_log()[-4:], ["plan_dst to caller's on 2", "mark on 2", "follow 2",
                                                "barrier"])
        event.wait(stream=3)
        self.assertEqual(self.take_log(), ["3 waits for 0", "3 waits for the mark"])
        last.wait(stream=3)
        self.assertEqual(self.take_log(), ["3 waits for 1"])
        plan.release()

    def test_the_end_waits_for_copies_on_other_streams(self):
        _, _, _, plan, event = self.buffer.dispatch(*self.inputs(), async_finish=True, stream=1)
        event.wait(stream=2)
        self.buffer.barrier(stream=3)
        self.take_log()
        self.buffer.synchronize(stream=5)
        self.assertEqual(self.take_log(), ["5 waits for 0", "5 waits for the mark", "5 waits for 1"])
        self.buffer.synchronize(stream=6)
        self.assertEqual(self.take_log(), ["6 waits for the mark"])
        plan.release()

    def expect_allocations_on(self, stream):
        FakeTorch.wanted_stream = stream
        self.addCleanup(setattr, FakeTorch, "wanted_stream", None)

    def test_torch_is_told_which_streams_use_its_memory(self):
        torch = FakeTorch()
        with mock.patch.object(device_buffer, "loaded_torch", lambda: torch), \
                mock.patch.object(device_module, "loaded_torch", lambda: torch):
            hidden = torch.empty((3, H), torch.bfloat16, "cuda:0")
            routes = torch.empty((3, K), torch.int32, "cuda:0")
            routes.values[:] = 0
            self.expect_allocations_on(7)
            rows, _, cu_seqlens, plan, event = self.buffer.dispatch(
                hidden, None, routes, async_finish=True, stream=7)
            self.assertEqual((hidden.streams, routes.streams, rows.streams), ([7], [7], []))
            event.wait(stream=8)
            self.assertEqual((hidden.streams, rows.streams, plan.dst.streams), ([7], [8], [8]))
            self.take_log()
            other = types.SimpleNamespace(cuda_stream=9)
            with mock.patch.object(FakeTorch.cuda, "current_stream", lambda device: other):
                self.assertEqual(plan.load.streams, [8])
            self.assertEqual(self.take_log(), ["9 waits for 0", "9 waits for the mark"],
                             "a look at a plan is one of the stream that looks")
            self.expect_allocations_on("default")
            self.buffer.combine(plan, rows, stream=0)
            self.assertEqual(rows.streams, [8, "default"])
            self.assertEqual(set(rows.values.flat), {7})
            self.assertEqual(cu_seqlens.values.tolist(), list(range(S * K, S * K + E + B)))
            self.assertEqual(plan.home_load.values.tolist(),
                             self.attachment.arrays["plan_home_load"].tolist())

    def test_it_is_destroyed_when_that_is_done(self):
        def fail():
            self.assertFalse(self.buffer.destroyed)
            raise PerigeeError("UNAVAILABLE", "the worker does not answer")
        self.attachment.on_leave = fail
        with self.assertRaisesRegex(PerigeeError, "does not answer"):
            self.buffer.destroy()
        self.assertFalse(self.buffer.destroyed)
        with self.assertRaisesRegex(ValueError, "has been destroyed"):
            self.buffer.barrier()
        self.attachment.on_leave = lambda: None
        self.buffer.destroy()
        self.assertTrue(self.buffer.destroyed and self.attachment.left)

    def test_a_failure_is_told_by_the_event_or_the_next_call(self):
        failure = PerigeeError("INVALID_ARGUMENT", "bad", "BAD_ROUTE")
        self.attachment.failures = {0: failure, 1: failure}
        event = self.buffer.barrier(async_finish=True)
        self.assertFalse(event.done())
        event.wait()
        for _ in range(2):
            with self.assertRaises(PerigeeError):
                event.synchronize()
        self.buffer.barrier()  # the event has told it
        self.attachment.ended = 2
        with self.assertRaises(PerigeeError):
            self.buffer.barrier()
        self.buffer.barrier()
        self.buffer.synchronize()

    def test_what_is_not_on_the_device_is_refused_before_anything_is_done(self):
        hidden, weights, routes = self.inputs()
        for kind, text, arguments in (
            (TypeError, "hidden_sh is on a device of DLPack.s type 1", (hidden.values, weights, routes)),
            (TypeError, "hidden_sh is of float32", (Array(hidden.values.astype("float32")),)),
            (ValueError, r"hidden_sh is \[5, 8\], expected \[0 to 4, 8\]", self.inputs(5)),
            (ValueError, "topk_experts_sk is missing", (hidden,)),
            (ValueError, "topk_experts_sk is float32", (hidden, weights, weights)),
        ):
            with self.assertRaisesRegex(kind, text):
                self.buffer.dispatch(*arguments)
        self.assertEqual(self.take_log(), [])

    def test_a_source_is_the_devices_and_is_prepared_behind_the_stream(self):
        for view, shape, dtype in zip(self.buffer.source_views("store"), ((S, H), (S, K)),
                                      ("bfloat16", "float32"), strict=True):
            self.assertEqual((view.shape, view.dtype), (shape, dtype))
        hidden, weights, routes = self.inputs()
        self.assertEqual(self.take_log(), ["source for store"])
        view, event = self.buffer.prepare_source(routes, hidden, weights, async_finish=True, stream=4)
        self.assertEqual(self.take_log(), [
            "caller's to input_routes on 4", "caller's to input_tokens on 4",
            "caller's to input_route_weights on 4", "follow 4", "prepare_source"])
        event.wait(4)
        self.take_log()
        self.buffer.materialise(view, zero_copy=True, router_weights_zero_copy=True,
                                async_finish=True, stream=4)
        self.assertEqual(self.take_log(), ["follow 4", "materialise"])

    def test_what_is_published_goes_on_beside_the_producer(self):
        hidden, weights, routes = self.inputs()
        self.take_log()
        target, planned = self.buffer.prepare_dispatch(routes, async_finish=True, stream=4)
        self.assertEqual(self.take_log(), ["caller's to input_routes on 4", "follow 4",
                                           "prepare_dispatch"])
        planned.wait(4)
        self.assertEqual(self.take_log(), ["4 waits for 0", "plan_dst to caller's on 4", "mark on 4"])
        self.assertEqual(target.mapped_hidden[0].address,
                         self.buffer.hidden_nvsh_buffer_view.address)
        prepared, _ = self.buffer.prepare_publication(target, weights, async_finish=True, stream=4)
        self.assertEqual(self.take_log(), ["caller's to input_route_weights on 4", "follow 4",
                                           "prepare_publication"])
        # The producer's rows come here, on stream 4, which has not been held since.
        rows, row_weights, _, plan = self.buffer.publish(prepared, zero_copy=True, stream=4)
        self.assertEqual(self.take_log(), [
            "follow 4", "publish", "4 waits for 1", "4 waits for 2",
            "shard_route_weights to caller's on 4", "mark on 4"])
        self.assertEqual(rows.address, self.buffer.hidden_nvsh_buffer_view.address)
        self.assertEqual(self.values(row_weights), [8] * NVS)
        self.assertIs(plan, target.plan)
        self.buffer.store_rows(self.buffer.prepare_dispatch(routes, stream=4), hidden, stream=4)
        self.assertIn("caller's to input_tokens on 4", self.take_log())


if __name__ == "__main__":
    unittest.main()

"""The supervisor's event loop: calls what was registered for descriptors and timers."""

import heapq
import itertools
import selectors
import time

MAX_TIMERS = 1024
MAX_WAIT_S = 3600.0  # poll(2) accepts no timeout above some weeks


class EventLoop:
    def __init__(self):
        # Not epoll: the kernel limits its entries for each user, and code of the same user could use them up.
        self.selector = selectors.PollSelector()
        self._timers = []
        self._timer_order = itertools.count()

    def run_once(self):
        """Wait for a descriptor or the next timer, and call what was registered for those that are ready."""
        for key, events in self.selector.select(self._wait_s()):
            # An earlier call of this round may have closed it, and its number may be in use again.
            current = self.selector.get_map().get(key.fd)
            if current is not None and current.data == key.data:
                key.data(events)
        while self._timers and self._timers[0][0] <= time.monotonic():
            call = heapq.heappop(self._timers)[2]
            if call is not None:
                call()

    def set_events(self, sock, before, events, call):
        if not before and events:
            self.selector.register(sock, events, call)
        elif before and not events:
            self.selector.unregister(sock)
        elif before != events:
            self.selector.modify(sock, events, call)

    def call_later(self, seconds, call):
        timer = [time.monotonic() + seconds, next(self._timer_order), call]
        heapq.heappush(self._timers, timer)
        return timer

    def cancel(self, timer):
        """Cancel a timer, and release what it refers to before its time has come."""
        timer[2] = None
        if self._timers and self._timers[0] is timer:
            heapq.heappop(self._timers)
        elif len(self._timers) > MAX_TIMERS:
            self._timers = [item for item in self._timers if item[2] is not None]
            heapq.heapify(self._timers)

    def _wait_s(self):
        if not self._timers:
            return None
        return min(max(0.0, self._timers[0][0] - time.monotonic()), MAX_WAIT_S)

#include "emit/graph_class.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kw {
namespace {

// Results are cloned: the next replay writes to the same memory, and a caller may keep what it got. {0}: how many
// tensors the module holds; {1}: copies a call's tensors; {2}: clones of the results; {3}: addresses of prepared
// weights; {4}: how many of the other addresses are the module's.
constexpr std::string_view kClass =
    R"py(HELD = {0}  # how many of kernel_forward's tensors are the module's own; the others are what a call passes


class ForwardGraphs:
    """kernel_forward as CUDA graphs, of one module: a call replays one instead of launching each kernel.

    A graph reads and writes the module's tensors where they lie, and so it does a call's, as long as calls pass tensors
    that lie where those of its capture did; once several calls in turn have not, it reads them from copies of its own.
    It holds for one set of addresses, and for the calls of one stream, which follow each other.
    """

    WARM_UP_CALLS = 2  # compile kernels and let libraries choose theirs
    MOST_CAPTURES = 4

    def __init__(self):
        self.graphs = {{}}  # (stream, addresses held) → addresses passed or None, graph, copies of what is passed, results
        self.place, self.passed, self.calls, self.captures = None, None, 0, 0
        self.lock = threading.Lock()

    def __call__(self, addresses, *tensors):
        if torch.cuda.is_current_stream_capturing():  # into the caller's own graph
            return kernel_forward(*tensors)
        place = (torch.cuda.current_stream().cuda_stream, {3}addresses[:{4}])
        passed = addresses[{4}:]
        with self.lock:
            known = self.graphs.get(place)
            if known is None or known[0] not in (None, passed):
                known = self.capture(place, passed, tensors) if self.is_warm(place, passed) else None
            if known is not None:
                where, graph, copies, results = known
                if where is None:
                    {1}
                graph.replay()
                return {2}
        return kernel_forward(*tensors)

    def is_warm(self, place, passed):
        """Whether enough calls in turn came from this place. Where places keep changing, captures would not pay."""
        self.calls = self.calls + 1 if place == self.place else 1
        self.passed = passed if self.calls == 1 or passed == self.passed else None  # that of all these calls
        self.place = place
        return self.calls > self.WARM_UP_CALLS and self.captures < self.MOST_CAPTURES

    def capture(self, place, passed, tensors):
        self.captures += 1
        self.place = None  # from here calls are counted anew
        graph = torch.cuda.CUDAGraph()
        stays = passed == self.passed and place not in self.graphs
        try:
            with torch.inference_mode(False):  # whose tensors could not be written to outside it
                copies = tensors[HELD:] if stays else [torch.empty_like(tensor) for tensor in tensors[HELD:]]
            with torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
                results = kernel_forward(*tensors[:HELD], *copies)
        except RuntimeError as error:
            self.captures = self.MOST_CAPTURES
            # PyTorch leaves the random generator in the capture, where it gives no numbers.
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())
            warnings.warn(f"ModelNew launches its kernels one by one, for they cannot be captured in a graph: {{error}}")
            return None
        stream = place[0]
        self.graphs = {{other: kept for other, kept in self.graphs.items() if other[0] != stream}}
        self.graphs[place] = (passed, graph, None, results) if stays else (None, graph, copies, results)
        return self.graphs[place]


FORWARD_GRAPHS = weakref.WeakKeyDictionary()  # module → its graphs, which can be neither copied nor pickled with it


def graphed_forward(module, addresses, *tensors):
    """What kernel_forward returns. The addresses are those of the module's and the call's tensors, without kept weights."""
    if DEVICE == "cpu":
        return kernel_forward(*tensors)
    if module not in FORWARD_GRAPHS:
        FORWARD_GRAPHS[module] = ForwardGraphs()
    return FORWARD_GRAPHS[module](addresses, *tensors)


)py";

}  // namespace

std::string graph_class_text(const std::vector<GraphInput>& inputs, size_t kept, size_t results) {
  const auto passed = static_cast<size_t>(std::count_if(
      inputs.begin(), inputs.end(), [](const GraphInput& input) { return input.kind == InputKind::kUser; }));
  const size_t held = inputs.size() - passed;
  const std::string_view copy = passed == 1 ? "copies[0].copy_(tensors[HELD])"
                                            : "torch._foreach_copy_(copies, tensors[HELD:])";
  const std::string_view fresh = results == 1 ? "results.clone()" : "tuple(result.clone() for result in results)";
  const std::string prepared = kept == 0 ? "" : fmt::format("*[tensor.data_ptr() for tensor in tensors[:{}]], ", kept);
  return fmt::format(fmt::runtime(kClass), kept + held, copy, fresh, prepared, held);
}

}  // namespace kw

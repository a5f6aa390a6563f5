// What a target's library takes for products, convolutions, attention and recurrent layers, by the cost model.
#pragma once

#include "plan/attention.hpp"
#include "plan/convolution.hpp"
#include "plan/product.hpp"
#include "plan/recurrence.hpp"
#include "target/device.hpp"

namespace kw {

// Seconds of a recurrent layer's step beside its products: for itself, and for each unit of each sample.
struct StepRates {
  double step = 10e-6, unit = 0;
};

// What a target's library reaches of the device's rates with products, attention and recurrent layers.
struct LibraryRates {
  double products = 0.92;
  // In single precision they make results of so many rows and columns, of which some are in vain, but for vectors: 8
  // rows by 8192 by 8192 took 0.20 ms on an H200, three times their bytes, 16 rows 0.24, 4 rows 0.125.
  int64_t tile = 64;
  // Beside that, for each element of a right operand in single precision, on one of the device's units: it is laid out
  // anew.
  double seconds_of_element = 0;
  // Of attention in single precision; in 16 bits, and there with a mask, for which libraries may have slower kernels.
  double single_attention = 0.6, halves_attention = 1.0, masked_attention = 0.5;
  // Of convolutions in single precision that must be exact, of the rate of f32; the seconds of one with hardly any
  // arithmetic, and how many more another takes than its arithmetic, which are at most as many as that; and whether a
  // bias is added in a kernel of its own.
  double exact_convolutions = 0.5, small_convolution = 0, more_of_convolution = 0;
  // Of depthwise ones in single precision: the same seconds of a small one, and the share of the rate of f32 that comes
  // on top of what memory takes; 0: memory hides it.
  double small_depthwise = 0, depthwise_products = 0;
  bool adds_bias = true;
  bool counts_kept = true;  // kernels of ours that read weights alone, whose results are kept while these do not change
  double flops_of_score = 0;  // of attention, beside its products
  // Queries of one of its blocks in single precision, which reads all keys by itself. 0: blocks share them out, and are
  // not bound by memory.
  int64_t attention_rows = 32;
  // Of recurrent layers. On an H200 6 layers of an LSTM, 512 steps, take 30 ms; of a GRU, 43.
  StepRates lstm, gru, rnn, projected;
  double recurrences = 0.4;  // of the rate of products, where they are large
  bool is_launched = true;   // the host prepares steps while products run
  // Where the device has no rate of its own for products in 16 bits (half_flops): theirs, of that in f32, of which
  // attention's shares are then.
  double bf16 = 1.0, f16 = 1.0;
};

class LibrarySeconds {
 public:
  LibrarySeconds(const Graph& graph, const DeviceDescription& device, const LibraryRates& rates)
      : graph_(graph), device_(device), rates_(rates) {}

  double seconds(const plan::Product& product) const;
  double seconds(const plan::Convolution& convolution) const;
  double seconds(const plan::Recurrence& recurrence) const;
  double seconds_of_attention(const Node& node) const;

 private:
  // Of products. `rounded`: to TF32.
  double rate_of(DType dtype, bool rounded) const;

  const Graph& graph_;
  const DeviceDescription& device_;
  const LibraryRates& rates_;
};

}  // namespace kw

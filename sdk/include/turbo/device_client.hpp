// Weight formats of a device tier (draft): the tables over a format's own members, and what every format refuses. Kernels
// are held by DeviceKernels of turbo/device.hpp.
#pragma once

#include <turbo/device.hpp>

#include <string>

namespace turbo {

/// The tables of a weight format of a device tier over T's members
///   void attach(const turbo_device*); void detach() noexcept;
///   void check(const turbo_device_matmul&) const;            throws Failure(TURBO_UNSUPPORTED, ...)
///   uint64_t workspace_bytes(const turbo_device_matmul&) const;
///   void matmul(turbo_stream*, const turbo_device_matmul&) const;
///   void check(const turbo_device_gather&) const;            likewise
///   void gather(turbo_stream*, const turbo_device_gather&) const;
template <typename T>
const void* weight_format_device_interface(std::string_view id) {
  static constexpr turbo_device_client client = {
      sizeof(turbo_device_client), 0,
      [](void* self, const turbo_device* device, turbo_error* error) noexcept {
        return guarded(error, [&] {
          detail::check(self && device, "attach");
          static_cast<T*>(self)->attach(device);
        });
      },
      [](void* self) noexcept {
        if (self) static_cast<T*>(self)->detach();
      }};
  static constexpr turbo_weight_format_device table = {
      sizeof(turbo_weight_format_device), 0,
      [](void* self, const turbo_device_matmul* args, turbo_error* error) noexcept {
        return guarded(error, [&] {
          detail::check(self && args, "check");
          static_cast<const T*>(self)->check(*args);
        });
      },
      [](void* self, const turbo_device_matmul* args) noexcept -> uint64_t {
        uint64_t bytes = 0;
        guarded(nullptr, [&] {
          detail::check(self && args, "workspace_bytes");
          bytes = static_cast<const T*>(self)->workspace_bytes(*args);
        });
        return bytes;
      },
      [](void* self, turbo_stream* stream, const turbo_device_matmul* args, turbo_error* error) noexcept {
        return guarded(error, [&] {
          detail::check(self && args, "matmul");
          static_cast<const T*>(self)->matmul(stream, *args);
        });
      },
      [](void* self, const turbo_device_gather* args, turbo_error* error) noexcept {
        return guarded(error, [&] {
          detail::check(self && args && TURBO_HAS(args, out_norm) && args->matrix, "check_gather");
          static_cast<const T*>(self)->check(*args);
        });
      },
      [](void* self, turbo_stream* stream, const turbo_device_gather* args, turbo_error* error) noexcept {
        return guarded(error, [&] {
          detail::check(self && args && TURBO_HAS(args, out_norm) && args->matrix && args->ids && args->n_rows && args->dst, "gather");
          static_cast<const T*>(self)->gather(stream, *args);
        });
      }};
  if (id == TURBO_DEVICE_CLIENT_DRAFT) return &client;
  if (id == TURBO_WEIGHT_FORMAT_DEVICE_DRAFT) return &table;
  return nullptr;
}

/// What every format refuses: broken shapes, matrices that do not belong together. `served(matrix)` throws for a matrix that
/// the format does not hold.
template <typename Served>
void check_device_matmul(const turbo_device_matmul& args, const char* who, Served&& served) {
  const std::string name = std::string(who) + ": ";
  if (args.struct_size < sizeof(turbo_device_matmul)) throw Failure(TURBO_INVALID_ARGUMENT, name + "a product of an older form");
  if (args.max_rows == 0 || args.n_matrices == 0 || args.n_matrices > TURBO_FUSED_MATRICES)
    throw Failure(TURBO_INVALID_ARGUMENT, name + "a product of " + std::to_string(args.n_matrices) + " matrices and " +
                                              std::to_string(args.max_rows) + " rows");
  if ((args.x_q8.rows || args.out_q8.rows) && args.cols % TURBO_DEVICE_Q8_TILE != 0)
    throw Failure(TURBO_INVALID_ARGUMENT, name + "bytes of rows of " + std::to_string(args.cols) + " columns");
  if (!args.x_q8.rows && args.x_stride < args.cols) throw Failure(TURBO_INVALID_ARGUMENT, name + "rows of a product overlap");
  for (uint32_t i = 0; i < args.n_matrices; ++i) {
    if (!args.matrices[i]) throw Failure(TURBO_INVALID_ARGUMENT, name + "a matrix of a product is missing");
    if (args.matrices[i]->cols != args.cols)
      throw Failure(TURBO_INVALID_ARGUMENT, name + "a matrix has " + std::to_string(args.matrices[i]->cols) + " inputs, the rows " +
                                                std::to_string(args.cols));
    served(*args.matrices[i]);
  }
  const bool gated = args.fuse == TURBO_FUSE_SILU || args.fuse == TURBO_FUSE_GELU;
  if (args.fuse > TURBO_FUSE_GELU) throw Failure(TURBO_UNSUPPORTED, name + "fusion " + std::to_string(args.fuse) + " is not known");
  if ((args.fuse == TURBO_FUSE_ADD && args.n_matrices != 1) ||
      (gated && (args.n_matrices != 2 || args.matrices[0]->rows != args.matrices[1]->rows)))
    throw Failure(TURBO_INVALID_ARGUMENT, name + "a fused product of matrices that do not fit it");
}

}  // namespace turbo

#include "backends/xla/pjrt_client.h"

#include <fmt/format.h>

namespace adder::xla {
namespace {

// The platform's name or version: both calls have the same arguments.
std::string client_text(const pjrt::Api& api, pjrt::Client* client,
                        pjrt::Call<pjrt::ClientTextArgs> call, std::string_view what) {
  auto args = pjrt::arguments<pjrt::ClientTextArgs>();
  args.client = client;
  check_pjrt(api, call(&args), what, adder::ErrorCode::kUnsupported);
  return {args.text, args.text_size};
}

}  // namespace

PjrtClient::PjrtClient(const Plugin& plugin) : plugin_(plugin), client_(nullptr, {plugin.api}) {
  auto args = pjrt::arguments<pjrt::ClientCreateArgs>();
  check_pjrt(api(), api().client_create(&args), fmt::format("use {}", plugin.path),
             adder::ErrorCode::kUnsupported);
  client_.reset(args.client);
  platform_ = client_text(api(), get(), api().client_platform_name, "name the platform");
  platform_version_ =
      client_text(api(), get(), api().client_platform_version, "tell the platform's version");
  find_device();
}

void PjrtClient::Destroy::operator()(pjrt::Client* client) const {
  auto args = pjrt::arguments<pjrt::ClientDestroyArgs>();
  args.client = client;
  take_failure(*api, api->client_destroy(&args));
}

MemoryUse PjrtClient::memory() const {
  const MemoryUse arrays{array_bytes(), 0, false};
  if (api().device_memory_stats == nullptr) return arrays;
  auto args = pjrt::arguments<pjrt::DeviceMemoryStatsArgs>();
  args.device = device_;
  const auto failure = take_failure(api(), api().device_memory_stats(&args));
  // Plugins of processors know of no limit.
  if (failure && failure->code == pjrt::kUnimplemented) return arrays;
  if (failure) fail(adder::ErrorCode::kIo, "cannot ask for the memory: {}", failure->message);
  return {args.bytes_in_use, args.bytes_limit.is_set ? args.bytes_limit.value : 0, true};
}

void PjrtClient::check_room(pjrt::Error* error, std::string_view action, size_t bytes) const {
  const auto failure = take_failure(api(), error);
  if (!failure) return;
  if (failure->code != pjrt::kResourceExhausted)
    fail(adder::ErrorCode::kIo, "cannot {}: {}", action, failure->message);
  std::string room = "free: not known";
  try {
    const MemoryUse use = memory();
    room = use.limit > 0 ? fmt::format("free: {} of {}", use.limit - use.used, use.limit)
                         : fmt::format("in use: {}", use.used);
  } catch (const Error&) {  // the one that is told is the other
  }
  fail(adder::ErrorCode::kIo, "cannot {}: the device has no memory left for {} bytes ({}): {}",
       action, bytes, room, failure->message);
}

void PjrtClient::find_device() {
  auto devices = pjrt::arguments<pjrt::ClientAddressableDevicesArgs>();
  devices.client = get();
  check_pjrt(api(), api().client_addressable_devices(&devices), "list the devices",
             adder::ErrorCode::kUnsupported);
  if (devices.num_devices == 0) {
    fail(adder::ErrorCode::kUnsupported, "{}: expected at least one device, got none",
         plugin_.path);
  }
  device_ = devices.devices[0];

  auto description = pjrt::arguments<pjrt::DeviceGetDescriptionArgs>();
  description.device = device_;
  check_pjrt(api(), api().device_get_description(&description), "describe the device",
             adder::ErrorCode::kUnsupported);
  auto kind = pjrt::arguments<pjrt::DeviceDescriptionKindArgs>();
  kind.description = description.description;
  check_pjrt(api(), api().device_description_kind(&kind), "name the device",
             adder::ErrorCode::kUnsupported);
  device_kind_.assign(kind.kind, kind.kind_size);
}

}  // namespace adder::xla

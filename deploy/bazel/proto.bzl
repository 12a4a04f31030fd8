"""cc_proto_library_from_system: .proto files -> cc_library through the system's protoc and gRPC plugin."""

ProtoFilesInfo = provider(
    doc = "The .proto files a target needs to be compiled, its own and its deps'.",
    fields = {"files": "depset of .proto files"},
)

def _generate_impl(ctx):
    suffixes = [".pb"] + ([".grpc.pb"] if ctx.attr.grpc else [])
    headers, sources = [], []
    for proto in ctx.files.srcs:
        stem = proto.basename[:-len(".proto")]
        for suffix in suffixes:
            headers.append(ctx.actions.declare_file(stem + suffix + ".h", sibling = proto))
            sources.append(ctx.actions.declare_file(stem + suffix + ".cc", sibling = proto))
    closure = depset(ctx.files.srcs, transitive = [dep[ProtoFilesInfo].files for dep in ctx.attr.deps])

    args = ctx.actions.args()
    args.add_all([".", "/usr/include"], before_each = "-I")
    args.add(ctx.bin_dir.path, format = "--cpp_out=%s")
    if ctx.attr.grpc:
        args.add(ctx.executable._plugin, format = "--plugin=protoc-gen-grpc=%s")
        args.add(ctx.bin_dir.path, format = "--grpc_out=%s")
    args.add_all(ctx.files.srcs)
    ctx.actions.run(
        executable = ctx.executable._protoc,
        arguments = [args],
        inputs = closure,
        outputs = headers + sources,
        tools = [ctx.executable._plugin],
        mnemonic = "ProtoCompile",
        progress_message = "Generating C++ from %s" % ctx.label,
    )
    return [
        DefaultInfo(files = depset(headers + sources)),
        OutputGroupInfo(headers = depset(headers), sources = depset(sources)),
        ProtoFilesInfo(files = closure),
    ]

_generate = rule(
    implementation = _generate_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".proto"], mandatory = True),
        "deps": attr.label_list(providers = [ProtoFilesInfo]),
        "grpc": attr.bool(default = True),
        "_protoc": attr.label(
            default = "@system_tools//:protoc",
            allow_single_file = True,
            cfg = "host",
            executable = True,
        ),
        "_plugin": attr.label(
            default = "@system_tools//:grpc_cpp_plugin",
            allow_single_file = True,
            cfg = "host",
            executable = True,
        ),
    },
    output_to_genfiles = False,
)

def cc_grpc_library(name, srcs, deps = [], grpc = True, **kwargs):
    """A cc_library of generated code.

    Args:
      name: the library; name + "_generated" holds the files.
      srcs: .proto files, imported by their path from the workspace root.
      deps: cc_grpc_library targets whose .proto files these import.
      grpc: whether the files hold services.
      **kwargs: as for cc_library.
    """
    generated = name + "_generated"
    _generate(name = generated, srcs = srcs, deps = [dep + "_generated" for dep in deps], grpc = grpc)
    for group in ["headers", "sources"]:
        native.filegroup(name = name + "_" + group, srcs = [generated], output_group = group)
    native.cc_library(
        name = name,
        srcs = [name + "_sources"],
        hdrs = [name + "_headers"],
        # Generated code is not ours to mend.
        copts = ["-w"],
        deps = deps + ["//third_party:grpc++" if grpc else "//third_party:protobuf"],
        **kwargs
    )

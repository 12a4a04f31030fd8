"""Debian's packages as cc_library targets. Their headers lie in /usr/include, so link options are all."""

def system_library(name, libs, deps = [], group = False, options = []):
    """One system library, linked shared, or static with --//third_party:static=true.

    Args:
      name: the target.
      libs: library names in link order; each has an archive (.a).
      deps: system libraries that these need.
      group: the archives name each other in a circle.
      options: further link options.
    """
    archives = ["-l:lib%s.a" % lib for lib in libs]
    if group:
        archives = ["-Wl,--start-group"] + archives + ["-Wl,--end-group"]
    native.cc_library(
        name = name,
        linkopts = select({
            "//third_party:is_static": archives + options,
            "//conditions:default": ["-l" + lib for lib in libs] + options,
        }),
        deps = deps,
        visibility = ["//visibility:public"],
    )

def _flag_impl(_ctx):
    return []

bool_flag = rule(
    implementation = _flag_impl,
    build_setting = config.bool(flag = True),
)

// Renders the OpenAPI document. Requests from the page are writes of a browser, so they carry its CSRF token.
const { root, csrf, tenant } = document.documentElement.dataset;

window.SwaggerUIBundle({
  url: `${root}/api/openapi.json`,
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "list",
  filter: true,
  validatorUrl: null,
  requestInterceptor: (request) => {
    if (!request.loadSpec && !request.headers.Authorization && !request.headers["X-API-Key"]) {
      request.headers["X-CSRF-Token"] = csrf;
      if (tenant && !request.headers["Headway-Tenant"]) request.headers["Headway-Tenant"] = encodeURIComponent(tenant);
    }
    return request;
  },
});
